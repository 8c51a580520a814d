"""undertow in the place of PyTorch: `import torch` finds it, for programs and libraries that are not to be changed.

    python -m undertow run program.py          for a process, and for those that it starts
    with undertow.as_torch(): ...              for a part of a program, or of a notebook

`import undertow` alone does none of this.

finder.py        how `import torch` and its modules are found
torch_module.py  the module that is called `torch`

run.py           the command `run`; doctor.py the command `doctor`
"""

from undertow.stand_in.finder import as_torch as as_torch
