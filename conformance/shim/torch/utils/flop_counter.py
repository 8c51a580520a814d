from .._undertow import late

FlopCounterMode = late("utils.flop_counter.FlopCounterMode")
