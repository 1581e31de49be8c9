//! What becomes of packets that a server has served: slots, jitter, losses and the like.

use perturb_quantity::Probability;

use super::value::{Map, Value, bare, text};
use crate::model::{Between, Correlated, Distribution, Drift, Jitter, Loss, Reorder, Slot};

pub(super) fn slot(slot: &Slot) -> Value {
    let mut map = Map::default();
    match &slot.between {
        Between::Range(min, max) => {
            map.set("min", bare(min)).set("max", bare(max));
        }
        Between::Drawn {
            distribution: shape,
            delay,
            scale,
        } => {
            distribution(&mut map, shape);
            map.set("delay", bare(delay)).set("jitter", bare(scale));
        }
    }
    map.optional("packets", slot.packets.as_ref(), |&packets| {
        Value::Integer(packets.into())
    });
    map.optional("bytes", slot.bytes.as_ref(), bare);
    Value::Map(map)
}

pub(super) fn distribution(map: &mut Map, distribution: &Distribution) {
    let word = match distribution {
        Distribution::Uniform => "uniform",
        Distribution::Normal => "normal",
        Distribution::Pareto => "pareto",
        Distribution::ParetoNormal => "pareto-normal",
        Distribution::Table(_) => "table",
    };
    map.set("distribution", bare(word));
    if let Distribution::Table(path) = distribution {
        map.set("table", text(path));
    }
}

pub(super) fn jitter(jitter: &Jitter) -> Value {
    let mut map = Map::default();
    distribution(&mut map, &jitter.distribution);
    let width = match jitter.distribution {
        Distribution::Normal => "stddev",
        _ => "scale",
    };
    map.set(width, bare(&jitter.scale));
    map.unless_default("reorder", &jitter.reorder, |&reorder| Value::Flag(reorder));
    match &jitter.drift {
        Some(Drift::Packets(correlation)) => map.set("correlation", bare(correlation)),
        Some(Drift::Time(constant)) => map.set("time_constant", bare(constant)),
        None => &mut map,
    };
    Value::Map(map)
}

pub(super) fn correlated(chance: &Correlated) -> Value {
    if chance.correlation == Probability::ZERO {
        return bare(&chance.probability);
    }
    Value::Map(of_events(chance))
}

pub(super) fn of_events(chance: &Correlated) -> Map {
    let mut map = Map::default();
    map.set("probability", bare(&chance.probability));
    map.unless_default("correlation", &chance.correlation, bare);
    map
}

pub(super) fn reorder(reorder: &Reorder) -> Value {
    let mut map = of_events(&reorder.chance);
    if reorder.gap != 1 {
        map.set("gap", Value::Integer(reorder.gap.into()));
    }
    Value::Map(map)
}

pub(super) fn loss(loss: &Loss) -> Value {
    let mut map = Map::default();
    // `ecn` needs a loss beside it, if only one that a timeline or a trace changes.
    let alone = loss.ecn && loss.burst.is_none() && loss.states.is_none() && loss.nth.is_empty();
    if alone {
        map.set("random", bare(&loss.random));
    } else {
        map.unless_default("random", &loss.random, bare);
    }
    map.unless_default("correlation", &loss.correlation, bare);
    map.optional("gilbert_elliott", loss.burst.as_ref(), |burst| {
        let mut map = Map::default();
        map.set("p", bare(&burst.to_bad)).set("r", bare(&burst.to_good));
        map.set("bad_loss", bare(&burst.bad_loss))
            .set("good_loss", bare(&burst.good_loss));
        Value::Map(map)
    });
    map.optional("state", loss.states.as_ref(), |states| {
        let mut map = Map::default();
        map.set("p13", bare(&states.p13)).set("p31", bare(&states.p31));
        map.set("p32", bare(&states.p32)).set("p23", bare(&states.p23));
        map.set("p14", bare(&states.p14));
        Value::Map(map)
    });
    if !loss.nth.is_empty() {
        map.set(
            "nth",
            Value::List(loss.nth.iter().map(|&index| Value::Integer(index)).collect()),
        );
    }
    map.unless_default("ecn", &loss.ecn, |&flag| Value::Flag(flag));
    Value::Map(map)
}
