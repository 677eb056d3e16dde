"""alone.py MODEL --classes N --channels N --side N --batch N --seconds S --layout NAME: images/s of one worker.

Runs pytorch_training.py's loop on any of the peers' models, to find the quicker memory layout.
"""
import argparse

import common
import pytorch_training
from models import make_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    for name in ("classes", "channels", "side", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--layout", required=True)
    args = parser.parse_args()
    common.torch.set_num_threads(1)
    model = make_model(args.model, args.classes, 0).to(memory_format=common.format_of(args.layout == "channels_last"))
    print(pytorch_training.images_per_second(model.train(), args, common.format_of(args.layout != "default")))


if __name__ == "__main__":
    main()
