"""What to change: rules propose changes to a run; one engine prices, filters and ranks them."""

from stepwatch.advice.case import Advice
from stepwatch.advice.engine import AdviceList, advice_on_log, advice_on_plan, advise

__all__ = ["Advice", "AdviceList", "advice_on_log", "advice_on_plan", "advise"]
