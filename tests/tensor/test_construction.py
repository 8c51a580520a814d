

def test_the_class_as_a_constructor(L: Any) -> None:
    assert L.Tensor([1, 2]).dtype == L.float32
    assert L.Tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert list(L.Tensor(2, 3).shape) == [2, 3]
    assert list(L.Tensor(5).shape) == [5]
    assert list(L.Tensor().shape) == [0]
    assert list(L.Tensor(L.Size([2, 3])).shape) == [2, 3]
    assert L.Tensor((2, 3)).tolist() == [2, 3]
    assert L.Tensor(np.array([1, 2])).dtype == L.float32
    assert not L.Tensor([1.0]).requires_grad
    for wrong in ((2.5,), ([1, 2], 3)):
        with pytest.raises(TypeError):
            L.Tensor(*wrong)
