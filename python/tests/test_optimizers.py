"""Optimizers and schedulers of torch, read once: training equals the plain loop, and what cannot be read is named."""
import math
import unittest
import warnings

from support import FakeCase, Points, make_mlp, pando, torch, F

from torch.optim import lr_scheduler as schedulers

STEPS, STEPS_PER_EPOCH = 6, 3  # 24 points in batches of 8, two epochs
NAMES = ("SGD", "Adam", "AdamW", "NAdam", "RMSprop", "Adagrad", "Adadelta")


def make_groups(model):
    return [dict(params=model[0].parameters(), lr=0.02, weight_decay=0.1), dict(params=model[3].parameters())]


def make_sgd(model):
    return torch.optim.SGD(make_groups(model), lr=0.1, momentum=0.9, nesterov=True)


def warm_up(step):
    return min((step + 1) ** -0.5, (step + 1) * 3 ** -1.5)


# name, scheduler of an optimizer, schedule_every
SCHEDULES = (
    ("none", None, None),
    ("cosine of steps", lambda o: schedulers.CosineAnnealingLR(o, STEPS), None),
    ("cosine of epochs", lambda o: schedulers.CosineAnnealingLR(o, STEPS // STEPS_PER_EPOCH), None),
    ("steps of epochs", lambda o: schedulers.StepLR(o, 1), "epoch"),
    ("own function", lambda o: schedulers.LambdaLR(o, warm_up), "step"),
    ("one cycle", lambda o: schedulers.OneCycleLR(o, [0.02, 0.1], total_steps=STEPS, cycle_momentum=False), None),
    ("sequence", lambda o: schedulers.SequentialLR(o, [schedulers.LinearLR(o, 0.1, total_iters=2),
                                                       schedulers.ExponentialLR(o, 0.7)], [2]), "step"),
    ("chain", lambda o: schedulers.ChainedScheduler([schedulers.ConstantLR(o, 0.1, 2),
                                                     schedulers.ExponentialLR(o, 0.9)]), "step"),
    ("restarts", lambda o: schedulers.CosineAnnealingWarmRestarts(o, 2), "step"))


class TorchCase(FakeCase):
    def train_both(self, make_optimizer, make_schedule=None, every=None, **options):
        """Trains with Pando and with the plain loop, and checks that the weights are equal."""
        self.new_fake()
        pando.seed(1)
        model = make_mlp()
        optimizer = make_optimizer(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SequentialLR warns of itself
            schedule = make_schedule(optimizer) if make_schedule else None
        before = read_state(optimizer, schedule)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = self.join(model, optimizer=optimizer, schedule=schedule, schedule_every=every, steps=STEPS, **options)
        self.assertEqual(read_state(optimizer, schedule), before)
        for x, y in run.loader():
            with run.micro_batch() as mb:
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                mb.log(loss=loss)
        self.assertEqual(self.fake.raised, [])
        expected = self.train_plain(make_optimizer, make_schedule, STEPS_PER_EPOCH if every == "epoch" or (
            make_schedule and getattr(schedule, "T_max", 0) == STEPS // STEPS_PER_EPOCH) else 1)
        for (name, ours), theirs in zip(model.named_parameters(), expected.parameters()):
            torch.testing.assert_close(ours.double(), theirs, rtol=2e-5, atol=2e-6, msg=name)

    def train_plain(self, make_optimizer, make_schedule, every):
        pando.seed(1)
        model = make_mlp().double()
        data = Points()
        optimizer = make_optimizer(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schedule = make_schedule(optimizer) if make_schedule else None
            for step in range(STEPS):
                batch = list(sum((work.samples for work in self.fake._works(step)), ()))
                optimizer.zero_grad()
                F.cross_entropy(model(data.x[batch].double()), data.y[batch]).backward()
                optimizer.step()
                if schedule and (step + 1) % every == 0 and step + 1 < STEPS:
                    schedule.step()
        return model


def read_state(optimizer, schedule):
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return groups, schedule and repr(schedule.state_dict())


class ReadTest(TorchCase):
    def test_schedulers_give_the_rates_of_the_plain_loop(self):
        for name, make_schedule, every in SCHEDULES:
            with self.subTest(schedule=name):
                self.train_both(make_sgd, make_schedule, every)

    def test_optimizers_are_read_with_their_groups(self):
        for name in NAMES:
            with self.subTest(optimizer=name):
                self.train_both(lambda model: getattr(torch.optim, name)(make_groups(model), lr=0.01),
                                lambda o: schedulers.ExponentialLR(o, 0.8), "step")

    def test_options_are_those_of_torch(self):
        options = dict(lr=0.5, weight_decay=0.125)
        for ours, given in (("SGD", dict(momentum=0.5, dampening=0.25)), ("Adam", dict(betas=(0.5, 0.75), eps=0.1)),
                            ("NAdam", dict(betas=(0.5, 0.75), momentum_decay=0.1)),
                            ("RMSprop", dict(alpha=0.5, momentum=0.25, centered=True)),
                            ("Adagrad", dict(lr_decay=0.5, initial_accumulator_value=0.25)),
                            ("Adadelta", dict(rho=0.5, eps=0.25))):
            model = make_mlp()
            theirs = getattr(torch.optim, ours)(model.parameters(), **options, **given)
            expected = self.join(make_mlp(), optimizer=getattr(pando, ours)(**options, **given))._sections
            self.assertEqual(self.join(model, optimizer=theirs)._sections, expected)

    def test_defaults_are_those_of_torch(self):
        for name in NAMES:
            model = make_mlp()
            theirs = torch.optim.SGD(model.parameters(), lr=1e-3) if name == "SGD" else \
                getattr(torch.optim, name)(model.parameters())
            self.assertEqual(self.join(model, optimizer=theirs)._sections,
                             self.join(make_mlp(), optimizer=getattr(pando, name)())._sections)

    def test_pando_s_schedule_goes_with_an_optimizer_of_torch(self):
        model = make_mlp()
        run = self.join(model, optimizer=make_sgd(model), schedule=pando.OneCycle())
        self.assertEqual((run._sections["schedule"]["type"], run._sections["optimizer"]["lr"]), ("one-cycle", 0.1))
        for entry, factor in zip(run.table.entries, (0.2, 0.2, 1.0, 1.0)):
            self.assertAlmostEqual(entry.lr_factor, factor)

    def test_equal_rates_are_one_entry(self):
        model = make_mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        schedule = schedulers.MultiStepLR(optimizer, [10, 300], gamma=1 / 3)
        run = self.join(model, optimizer=optimizer, schedule=schedule, schedule_every="epoch", steps=1000)
        self.assertEqual(run._sections["schedule"]["rates"], ["0.3*30", "0.1*870", "0.0333333333*100"])

    def test_rates_that_never_change_are_no_table(self):
        model = make_mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        schedule = schedulers.StepLR(optimizer, 100)
        run = self.join(model, optimizer=optimizer, schedule=schedule, schedule_every="step")
        self.assertEqual(run._sections["schedule"], {"type": "constant", "warmup_steps": 0})


class RefusedTest(FakeCase):
    def refuse(self, text, make_schedule=None, make_optimizer=make_sgd, **options):
        model = make_mlp()
        optimizer = make_optimizer(model)
        schedule = make_schedule(optimizer) if make_schedule else None
        before = read_state(optimizer, schedule)
        with self.subTest(text=text), self.assertRaisesRegex(pando.PandoError, text):
            self.join(model, optimizer=optimizer, **{"schedule": schedule, "steps": STEPS, **options})
        self.assertEqual(read_state(optimizer, schedule), before)

    def test_optimizers_that_the_servers_do_not_have(self):
        class Own(torch.optim.SGD):
            pass

        for kind in (torch.optim.LBFGS, torch.optim.Adamax, torch.optim.ASGD, torch.optim.Rprop):
            self.refuse(f"optimizer is a {kind.__name__} .torch", make_optimizer=lambda model: kind(model.parameters()))
        self.refuse("optimizer is a Own .test_optimizers.*pass SGD, Adam",
                    make_optimizer=lambda model: Own(model.parameters(), lr=0.1))
        for option in ("amsgrad", "maximize"):
            self.refuse(f"Adam has {option}=True, which the servers do not have",
                        make_optimizer=lambda model: torch.optim.Adam(model.parameters(), **{option: True}))

    def test_groups_that_differ_in_more_than_rate_and_decay(self):
        def make_mixed(model):
            return torch.optim.Adam([dict(params=model[0].parameters()),
                                     dict(params=model[3].parameters(), betas=(0.5, 0.9))])
        self.refuse(r"parameter group 1 has betas=\(0.5, 0.9\), and group 0 has", make_optimizer=make_mixed)
        self.refuse("the rates of groups must have the same ratio",
                    lambda o: schedulers.CosineAnnealingLR(o, STEPS, eta_min=1e-3))
        self.refuse("the rates of groups must have the same ratio",
                    lambda o: schedulers.LambdaLR(o, [lambda step: float(step > 2), lambda step: 1.0]),
                    schedule_every="step")

    def test_an_optimizer_that_was_stepped(self):
        def make_stepped(model):
            optimizer = torch.optim.Adam(model.parameters())
            model(Points().x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            return optimizer
        self.refuse("has made steps before pando.join", make_optimizer=make_stepped)

    def test_schedulers_that_look_at_results(self):
        self.refuse(r"ReduceLROnPlateau, which decides by results \(metrics\).*early_stop_patience",
                    schedulers.ReduceLROnPlateau)

    def test_schedulers_that_move_the_momentum(self):
        self.refuse("OneCycleLR moves momentum, from 0.95 .*cycle_momentum=False",
                    lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=STEPS))
        self.refuse("CyclicLR moves momentum", lambda o: schedulers.CyclicLR(o, 0.01, 0.1, 2), schedule_every="step")

    def test_whether_steps_or_epochs_are_counted(self):
        def make_step(optimizer):
            return schedulers.StepLR(optimizer, 1)
        self.refuse("schedule is a StepLR: pass schedule_every.*6 steps and 2 epochs", make_step)
        self.refuse("expected \"step\" or \"epoch\"", make_step, schedule_every="steps")

        def make_cycle(total):
            return lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=total, cycle_momentum=False)
        self.refuse("total_steps=5, and this run has 6 steps and 2 epochs: give it total_steps=6", make_cycle(5))
        self.refuse("total_steps=2 and schedule_every='step', and this", make_cycle(2), schedule_every="step")
        self.refuse("total_steps=6 and schedule_every='epoch'.*total_steps=2", make_cycle(6), schedule_every="epoch")
        self.refuse("schedule_every= goes with", schedule_every="step")

    def test_schedulers_that_do_not_belong_to_the_optimizer(self):
        other = make_sgd(make_mlp())
        self.refuse("of another optimizer", lambda o: schedulers.StepLR(other, 1), schedule_every="step")
        self.refuse("sets the rates of this SGD", lambda o: schedulers.StepLR(o, 1), schedule=None)
        self.refuse("sets the rates of this SGD", lambda o: schedulers.StepLR(o, 1), schedule=pando.Constant())

    def test_schedulers_that_were_stepped(self):
        def make_used(optimizer):
            schedule = schedulers.ExponentialLR(optimizer, 0.5)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                schedule.step()
            return schedule
        self.refuse("ExponentialLR was stepped 1 times before", make_used, schedule_every="step")

    def test_rates_that_are_none(self):
        for function, text in ((lambda step: 1.0 - step, "gives the rates .-0.02, -0.1. after 2"),
                               (lambda step: math.nan if step else 1.0, "gives the rates .nan, nan. after 1"),
                               (lambda step: 1 / (3 - step), "step 3 of LambdaLR failed .float division by zero"),
                               (lambda step: 0.0, "gives the rate 0 to every step")):
            self.refuse(text.replace("float division", ".*division"), lambda o: schedulers.LambdaLR(o, function),
                        schedule_every="step")

    def test_params_go_with_pando_s_optimizers(self):
        model = make_mlp()
        with self.assertRaisesRegex(pando.PandoError, "torch's SGD has its own parameter groups"):
            self.join(model, optimizer=make_sgd(model), params=model.parameters())


if __name__ == "__main__":
    unittest.main()
