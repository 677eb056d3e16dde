"""Public training scripts, each written again in a few lines. build(NAME, ...) makes one of MAKERS."""
import pando_train as pando

from . import generative, pairs, tables, text, vision

MODULES = {
    vision: ["mnist", "imagenet", "cifar", "super_resolution", "unet"],
    text: ["word_language_model", "masked_lm", "nanogpt", "mingpt", "seq2seq"],
    generative: ["vae", "dcgan", "wgan", "autoencoder"],
    pairs: ["siamese", "simclr", "distillation", "multi_task"],
    tables: ["dlrm", "click_auc", "early_stop", "actor_critic"],
}
MAKERS = {name: getattr(module, name) for module, names in MODULES.items() for name in names}


def build(name, draws, steps):
    """The script from seed 1; `draws`: with dropout and other random draws."""
    pando.seed(1)
    return MAKERS[name](draws, steps)
