"""`torch.utils.checkpoint`, from undertow's checkpoint module."""

from .._undertow import forward, late

_PLACES = ("autograd.checkpoint.", "utils.checkpoint.", "checkpoint.", "autograd.", "")
__getattr__ = forward(*_PLACES)

checkpoint = late("autograd.checkpoint.checkpoint", "utils.checkpoint.checkpoint", "autograd.checkpoint", "checkpoint")
checkpoint_sequential = late(*(f"{place}checkpoint_sequential" for place in _PLACES))
CheckpointPolicy = late(*(f"{place}CheckpointPolicy" for place in _PLACES))
_CachingTorchDispatchMode = late("autograd.checkpoint.selective.Caching")
_CachedTorchDispatchMode = late("autograd.checkpoint.selective.Cached")
create_selective_checkpoint_contexts = late(*(f"{place}create_selective_checkpoint_contexts" for place in _PLACES))
