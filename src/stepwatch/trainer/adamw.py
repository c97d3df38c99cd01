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

    def make_room(self) -> None:
        """Moments as torch makes them in the first step. There they would take the memory that this step has freed, and
        the second one would have to get as much from the system, which takes time.
        """
        for group in self.param_groups:
            kinds = ("exp_avg",) if group.get("muon") else ("exp_avg", "exp_avg_sq")
            for weight in group["params"]:
                if not self.state[weight]:
                    self.state[weight] = {
                        "step": torch.tensor(0.0), **{kind: torch.zeros_like(weight) for kind in kinds},
                    }  # fmt: skip
