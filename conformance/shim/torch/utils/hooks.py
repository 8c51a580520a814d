from .._undertow import late

RemovableHandle = late("autograd.graph.RemovableHandle", "graph.hooks.RemovableHandle")
