"""torch's AdamW without torch's compiler.

To mark methods of its optimizers as not to be compiled, torch imports the compiler, which takes a second of each start.
Where the model is compiled, its own code is; the optimizer is not.
"""

from __future__ import annotations

import inspect

import torch


class AdamW(torch.optim.AdamW):
    """The same arithmetic: these methods are torch's, as they are below what marks them."""

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
