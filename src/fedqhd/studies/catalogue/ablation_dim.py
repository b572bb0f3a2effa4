"""The federation gap over the dimension D, with m = 4D anchors."""

from __future__ import annotations

from fedqhd.studies.ablation_study import Ablation, Pairs, groups, slopes_of
from fedqhd.studies.markdown import commits_of, markdown
from fedqhd.studies.study import Rows

DIMENSIONS = [(D, 4 * D) for D in (16, 32, 64, 128, 256, 512, 1024, 2048)]


class AblationDim(Ablation):
    """The ablation over D; its table shows the slopes."""

    name = "ablation-dim"
    rank = 5
    about = "the federation gap as D grows with m = 4D, without training and with it"
    hours = 1.0
    over = "D"

    @property
    def computed(self) -> Pairs:
        return DIMENSIONS

    def table(self, rows: Rows) -> list[str]:
        body = []
        for title, shown in groups(rows, self.over).items():
            seeds = len({r["seed"] for r in shown})
            mark = f", {seeds} of {len(self.seeds)} seeds" if seeds < len(self.seeds) else ""
            for label, (b, low, high) in slopes_of(shown).items():
                if "gap_rms" in label:
                    text = f"{b:.2f} [{low:.2f}, {high:.2f}]"
                    body.append([f"{title}{mark}", label.replace("gap_rms, ", ""), text, commits_of(shown)])
        return ["## Ablations over D and m", "",
                "Slope of the federation gap (root mean square, held-out anchors) over D in double logarithms; the "
                "paper",
                "has −0.525. The whole of it is in [docs/theory.md](docs/theory.md).", "",
                *markdown(["", "compilation", "slope", "commit"], body)]  # fmt: skip
