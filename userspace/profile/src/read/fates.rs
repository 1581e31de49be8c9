//! Reads what becomes of packets besides waiting: jitter, loss, copies, damage, and packets that go ahead.

use perturb_quantity::Probability;

use crate::diagnostic::Problem;
use crate::findings::Findings;
use crate::keys;
use crate::model::{Correlated, Distribution, Drift, GilbertElliott, Jitter, Loss, LossStates, Reorder};
use crate::read::{self, At, Fields};
use crate::yaml::Kind;

pub(crate) fn jitter(at: At<'_>, findings: &mut Findings<'_>) -> Option<Jitter> {
    if !matches!(at.node.kind, Kind::Map(_)) {
        let scale = at.quantity(keys::SCALE, findings)?;
        return Some(Jitter {
            distribution: Distribution::Uniform,
            scale,
            reorder: false,
            drift: None,
        });
    }
    let fields = Fields::of(at, &keys::JITTER, &[], findings)?;
    let kind = kind(&fields, findings);
    let stddev = fields.read("stddev", findings, |at, f| at.quantity(keys::SCALE, f));
    if fields.node("stddev").is_some() {
        if fields.node("scale").is_some() {
            let why = "both give the width";
            fields.report("stddev", Problem::Excludes { other: "scale", why }, findings);
        } else if kind.is_some_and(|kind| kind != "normal") {
            let (why, remedy) = (
                "only a normal distribution is given by it",
                "write `scale` instead",
            );
            fields.unfit("stddev", why, remedy, findings);
        }
    }
    let scale = match fields.node("stddev") {
        Some(_) => stddev,
        None => fields.require("scale", "scale: 2ms", findings, |at, f| {
            at.quantity(keys::SCALE, f)
        }),
    };
    let distribution = distribution(&fields, kind, findings);
    let reorder = fields.read("reorder", findings, read::flag).unwrap_or(false);
    let distribution = distribution?;
    let correlation = fields.read("correlation", findings, |at, f| at.quantity(keys::CORRELATION, f));
    let constant = fields.read("time_constant", findings, |at, f| {
        at.quantity(keys::TIME_CONSTANT, f)
    });
    if fields.node("correlation").is_some() && fields.node("time_constant").is_some() {
        let why = "both say how a packet's jitter depends on those before";
        fields.report(
            "time_constant",
            Problem::Excludes {
                other: "correlation",
                why,
            },
            findings,
        );
    }
    let correlation = correlation.filter(|&correlation| correlation > Probability::ZERO);
    Some(Jitter {
        distribution,
        scale: scale?,
        reorder,
        drift: constant.map(Drift::Time).or(correlation.map(Drift::Packets)),
    })
}

/// The word for a distribution; uniform without one.
pub(crate) fn kind<'n>(fields: &Fields<'n>, findings: &mut Findings<'_>) -> Option<&'n str> {
    if fields.node("distribution").is_none() {
        return Some("uniform");
    }
    fields.read("distribution", findings, |at, f| {
        at.choice(keys::DISTRIBUTIONS, keys::DISTRIBUTIONS, f)
    })
}

/// The distribution that this word is for, and its table.
pub(crate) fn distribution(
    fields: &Fields<'_>,
    kind: Option<&str>,
    findings: &mut Findings<'_>,
) -> Option<Distribution> {
    let table = if kind == Some("table") {
        fields.require("table", "table: measured.dist", findings, |at, f| {
            let path = at.prose(keys::MAX_TEXT, f)?;
            if path.is_empty() {
                let (why, remedy) = ("it names no file", "name a file in iproute2's .dist format");
                at.unfit(why, remedy, f);
                return None;
            }
            Some(path)
        })
    } else {
        if fields.node("table").is_some() && kind.is_some() {
            let why = "only that distribution comes from a file";
            fields.needs("table", "distribution: table", why, findings);
        }
        None
    };
    Some(match kind? {
        "uniform" => Distribution::Uniform,
        "normal" => Distribution::Normal,
        "pareto" => Distribution::Pareto,
        "pareto-normal" => Distribution::ParetoNormal,
        _ => Distribution::Table(table?),
    })
}

/// A percentage, or one with a correlation.
pub(crate) fn correlated(at: At<'_>, findings: &mut Findings<'_>) -> Option<Correlated> {
    if !matches!(at.node.kind, Kind::Map(_)) {
        return at.quantity(keys::SHARE, findings).map(Correlated::from);
    }
    of_events(&Fields::of(at, &keys::CORRELATED, &[], findings)?, findings)
}

fn of_events(fields: &Fields<'_>, findings: &mut Findings<'_>) -> Option<Correlated> {
    let probability = fields.require("probability", "probability: 1%", findings, |at, f| {
        at.quantity(keys::SHARE, f)
    });
    let correlation = fields.read("correlation", findings, |at, f| at.quantity(keys::CORRELATION, f));
    Some(Correlated {
        probability: probability?,
        correlation: correlation.unwrap_or_default(),
    })
}

pub(crate) fn reorder(at: At<'_>, findings: &mut Findings<'_>) -> Option<Reorder> {
    if !matches!(at.node.kind, Kind::Map(_)) {
        let chance = at.quantity(keys::SHARE, findings)?.into();
        return Some(Reorder { chance, gap: 1 });
    }
    let fields = Fields::of(at, &keys::REORDER, &[], findings)?;
    let chance = of_events(&fields, findings);
    let gap = fields.read("gap", findings, |at, f| at.integer(keys::REORDER_GAP, f));
    Some(Reorder {
        chance: chance?,
        gap: gap.and_then(|gap| u32::try_from(gap).ok()).unwrap_or(1),
    })
}

pub(crate) fn loss(at: At<'_>, findings: &mut Findings<'_>) -> Option<Loss> {
    if !matches!(at.node.kind, Kind::Map(_)) {
        let random = at.quantity(keys::SHARE, findings)?;
        return Some(Loss {
            random,
            ..Loss::default()
        });
    }
    let fields = Fields::of(at, &keys::LOSS, &[], findings)?;
    let nth = fields.read("nth", findings, |at, findings| {
        let limit = perturb_common::abi::MAX_NTH as usize;
        let mut nth = at.one_or_more(limit, findings, |at, f| at.integer(keys::NTH, f))?;
        nth.sort_unstable();
        Some(nth)
    });
    let burst = fields.read("gilbert_elliott", findings, gilbert_elliott);
    let states = fields.read("state", findings, loss_states);
    if fields.node("gilbert_elliott").is_some() && fields.node("state").is_some() {
        let why = "both are chains of losses in bursts";
        fields.report(
            "state",
            Problem::Excludes {
                other: "gilbert_elliott",
                why,
            },
            findings,
        );
    }
    let models = ["random", "gilbert_elliott", "state", "nth"];
    if fields.node("ecn").is_some() && models.iter().all(|key| fields.node(key).is_none()) {
        let why = "it marks what would be lost (`random: 0%` where a timeline or a trace says when)";
        fields.needs("ecn", "random", why, findings);
    }
    Some(Loss {
        random: fields
            .read("random", findings, |at, f| at.quantity(keys::SHARE, f))
            .unwrap_or_default(),
        correlation: fields
            .read("correlation", findings, |at, f| at.quantity(keys::CORRELATION, f))
            .unwrap_or_default(),
        burst,
        states,
        nth: nth.unwrap_or_default(),
        ecn: fields.read("ecn", findings, read::flag).unwrap_or_default(),
    })
}

fn gilbert_elliott(at: At<'_>, findings: &mut Findings<'_>) -> Option<GilbertElliott> {
    let fields = Fields::of(at, &keys::GILBERT_ELLIOTT, &[], findings)?;
    let share = |at: At<'_>, f: &mut Findings<'_>| at.quantity(keys::SHARE, f);
    let to_bad = fields.require("p", "p: 1%", findings, share);
    let to_good = fields.require("r", "r: 10%", findings, share);
    let bad_loss = fields.read("bad_loss", findings, share);
    let good_loss = fields.read("good_loss", findings, share);
    Some(GilbertElliott {
        to_bad: to_bad?,
        to_good: to_good?,
        bad_loss: bad_loss.unwrap_or(Probability::ONE),
        good_loss: good_loss.unwrap_or(Probability::ZERO),
    })
}

fn loss_states(at: At<'_>, findings: &mut Findings<'_>) -> Option<LossStates> {
    let fields = Fields::of(at, &keys::LOSS_STATES, &[], findings)?;
    let share = |at: At<'_>, f: &mut Findings<'_>| at.quantity(keys::SHARE, f);
    let p13 = fields.require("p13", "p13: 1%", findings, share)?;
    let rest =
        |of: Probability| Probability::from_billionths(Probability::ONE.billionths() - of.billionths());
    let mut other = |key, or| fields.read(key, findings, share).unwrap_or(or);
    let p32 = other("p32", Probability::ZERO);
    let states = LossStates {
        p13,
        p31: other("p31", rest(p13.max(p32))),
        p32,
        p23: other("p23", Probability::ONE),
        p14: other("p14", Probability::ZERO),
    };
    for (key, one, other, why) in [
        ("p31", states.p31, p32, "p31 and p32 are more than 100% together"),
        ("p13", p13, states.p14, "p13 and p14 are more than 100% together"),
    ] {
        if one > rest(other) {
            fields.unfit(key, why, "lower one of them", findings);
        }
    }
    Some(states)
}
