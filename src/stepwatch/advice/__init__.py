"""What to change: rules propose changes to a run; one engine prices, filters and ranks them."""

from stepwatch.advice.engine import AdviceList, advice_on_log, advice_on_plan, advise
from stepwatch.advice.proposals import Advice

__all__ = ["Advice", "AdviceList", "advice_on_log", "advice_on_plan", "advise"]
