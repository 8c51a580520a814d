import torch

TEST_CUDA = torch.cuda.is_available()
