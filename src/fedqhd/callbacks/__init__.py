"""The callbacks that come with the package. Each module has one; adding another takes a file here and nothing else.

```python
from fedqhd.callbacks import Evaluate, KeepBest, StopAt
fedqhd.train(env="CartPole-v1", callbacks=[Evaluate(every=2), KeepBest(), StopAt(475)])
```
"""

from fedqhd.callbacks.evaluate import Evaluate
from fedqhd.callbacks.keep_best import KeepBest
from fedqhd.callbacks.mlflow import MLflow
from fedqhd.callbacks.notebook import NotebookProgress
from fedqhd.callbacks.stop_at import StopAt
from fedqhd.callbacks.tensorboard import TensorBoard
from fedqhd.callbacks.wandb import WandB
from fedqhd.runs.callback import Callback, Evaluation, Training
from fedqhd.runs.scalars import ScalarLogger

__all__ = [
    "Callback",
    "Evaluate",
    "Evaluation",
    "KeepBest",
    "MLflow",
    "NotebookProgress",
    "ScalarLogger",
    "StopAt",
    "TensorBoard",
    "Training",
    "WandB",
]
