"""Multi-step plans: operators that no single kernel computes, as steps with stored intermediates."""
