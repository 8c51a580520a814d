from .._undertow import forward, late

__getattr__ = forward("autograd.graph.", "autograd.")

GradientEdge = late("autograd.graph.GradientEdge")
