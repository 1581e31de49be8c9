//! A timeline and a trace in their normal form.

use std::fmt;

use perturb_quantity::{Duration, Probability};

use super::value::{Map, Value, alternatives, bare, text};
use super::volume;
use crate::model::{Profile, ServerId};
use crate::timeline::{Change, Down, Given, Random, Shape, Start, Step, Subject, Timeline, Trace, instant};

pub(super) fn timeline(profile: &Profile, timeline: &Timeline) -> Value {
    let mut map = Map::default();
    match timeline.start {
        Start::Apply => {}
        Start::FirstPacket => {
            map.set("start", bare("first-packet"));
        }
        Start::At(nanos) => {
            map.set("start", text(&instant::written(nanos)));
        }
    }
    map.optional("repeat", timeline.repeat.as_ref(), bare);
    map.optional("end", timeline.end.as_ref(), bare);
    if !timeline.steps.is_empty() {
        let steps = timeline.steps.iter().map(|one| step(profile, one));
        map.set("steps", Value::List(steps.collect()));
    }
    Value::Map(map)
}

fn step(profile: &Profile, step: &Step) -> Value {
    let mut map = Map::default();
    map.set("at", bare(&step.at));
    map.optional("every", step.every.as_ref(), given);
    map.optional("times", step.times.as_ref(), |&times| Value::Integer(times));
    // `down` says it otherwise.
    let lasts = if step.change.down.is_some() {
        None
    } else {
        step.lasts
    };
    map.optional("for", lasts.as_ref(), bare);
    map.unless_default("over", &step.over, bare);
    map.optional("flap", step.flap.as_ref(), |flap| {
        let mut map = Map::default();
        map.set("up", given(&flap.up)).set("down", given(&flap.down));
        Value::Map(map)
    });
    subject(&mut map, profile, &step.subject);
    change(&mut map, &step.change, step);
    Value::Map(map)
}

fn subject(map: &mut Map, profile: &Profile, subject: &Subject) {
    match subject {
        Subject::Servers(ids) => {
            let name = |id: &ServerId| {
                profile
                    .server(*id)
                    .map_or(Value::Integer(0), |(name, _)| text(name))
            };
            map.set("server", alternatives(ids, name))
        }
        Subject::Links(names) if names.is_empty() => map.set("link", bare("all")),
        Subject::Links(names) => map.set("link", alternatives(names, text)),
        Subject::Level(level) => map.set("level", Value::Integer(*level as u64)),
        Subject::Partition(groups) => {
            let host = |&host: &usize| match profile.hosts.get(host) {
                Some((name, _)) => text(name),
                None => text(&format!("h{}", host + 1)),
            };
            let groups = groups
                .iter()
                .map(|group| Value::List(group.iter().map(host).collect()));
            map.set("partition", Value::List(groups.collect()))
        }
        Subject::Overhead => return,
    };
}

fn change(map: &mut Map, change: &Change, step: &Step) {
    map.optional("gap", change.gap.as_ref(), given);
    map.optional("bandwidth", change.bandwidth.as_ref(), given);
    map.optional("latency", change.latency.as_ref(), given);
    map.optional("buffer", change.buffer.as_ref(), volume);
    map.optional("loss", change.loss.as_ref(), bare);
    map.optional("jitter", change.jitter.as_ref(), bare);
    map.optional("overhead", change.overhead.as_ref(), |overhead| {
        let mut map = Map::default();
        map.set("send", bare(&overhead.send))
            .set("receive", bare(&overhead.receive));
        Value::Map(map)
    });
    if let Some(down) = change.down {
        map.optional("down", step.lasts.as_ref(), bare);
        if down == Down::Hold {
            map.set("hold", Value::Flag(true));
        }
    }
}

fn given<Q: fmt::Display>(given: &Given<Q>) -> Value {
    match given {
        Given::Fixed(value) => bare(value),
        Given::Random(Random { shape, mean, scale }) => {
            let mut map = Map::default();
            map.set("distribution", bare(shape.as_ref()))
                .set("mean", bare(mean));
            if *shape != Shape::Exponential {
                map.set("scale", bare(scale));
            }
            Value::Map(map)
        }
    }
}

pub(super) fn trace(trace: &Trace) -> Value {
    let mut map = Map::default();
    map.set("file", text(&trace.file))
        .set("format", bare(trace.format.as_ref()));
    map.optional("at_end", trace.at_end.as_ref(), |end| bare(end.as_ref()));
    map.unless_default("offset", &trace.offset, |offset: &Duration| bare(offset));
    if trace.scale != Probability::ONE {
        map.set("scale", bare(&trace.scale));
    }
    Value::Map(map)
}
