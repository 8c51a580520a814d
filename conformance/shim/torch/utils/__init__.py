from . import _mode_utils, _python_dispatch, _pytree, checkpoint, flop_counter, hooks, weak
