from .._undertow import late

no_dispatch = late("no_dispatch")
