//! What `top` knows, and what keys do to it. It draws nothing and asks nobody.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use perturb_emulator::status::{ClassReport, Flow, Report, ServerReport};
use serde_json::Value;

use super::{
    knob::{KNOBS, Way},
    words,
};
use crate::cli::Activity;

/// Looks that are kept: no terminal shows more side by side.
const KEPT: usize = 512;

/// A key, whatever it is called on the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    First,
    Last,
    Left,
    Right,
    Turn(Way),
    Pause,
    Undo,
    Help,
    Quit,
}

/// What is to be done to the emulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// A knob of [`KNOBS`], by its place there.
    Turn {
        server: String,
        knob: usize,
        way: Way,
    },
    Pause(bool),
    Undo,
}

/// What a key makes of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pressed {
    Shown,
    Ask(Ask),
    Quit,
}

/// What was done.
#[derive(Debug)]
pub(super) struct Done {
    /// What came of it, or why nothing did.
    pub(super) said: Result<String, String>,
    /// The profile that is in force now, if it is another one.
    pub(super) profile: Option<Value>,
    /// Whether it is paused now, if that was asked for.
    pub(super) paused: Option<bool>,
}

/// A server over time, oldest look first.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Share of the time that it was busy.
    pub(super) in_use: VecDeque<f64>,
    /// As the time that a packet would wait, us.
    pub(super) backlog: VecDeque<f64>,
    /// Packets dropped since the look before.
    pub(super) drops: VecDeque<f64>,
}

/// What a server does now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Now {
    /// Bits per second; nobody knows before the second look.
    pub(super) carries: Option<f64>,
    /// Since the look before.
    pub(super) drops: Option<u64>,
}

/// What a class has in a direction, since the look before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Passing {
    /// Packets per second.
    pub(super) packets: Option<f64>,
    /// Bits per second.
    pub(super) carries: Option<f64>,
    pub(super) drops: Option<u64>,
    /// Mean delay since the emulation began, us.
    pub(super) delay: Option<f64>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    /// The last look.
    pub(super) report: Report,
    /// Whether there was one.
    pub(super) seen: bool,
    /// By server, in the report's order.
    pub(super) now: Vec<Now>,
    pub(super) passing: Vec<(String, &'static str, Passing)>,
    pub(super) history: BTreeMap<String, History>,
    pub(super) profile: Value,
    /// A server, by its place in the report.
    pub(super) selected: usize,
    /// A knob, by its place in [`KNOBS`].
    pub(super) knob: usize,
    /// Why the last look saw nothing.
    pub(super) blind: Option<String>,
    /// What came of the last key.
    pub(super) said: Option<Result<String, String>>,
    /// Things asked that are not done yet.
    pub(super) waiting: usize,
    /// Whether the help takes the place of all else.
    pub(super) help: bool,
}

impl Model {
    /// Another look, so long after the one before.
    pub(super) fn see(&mut self, mut report: Report, time: Duration) {
        self.blind = None;
        let is_first = !std::mem::replace(&mut self.seen, true);
        let selected = self.server().map(|server| server.name.clone());
        if !is_first {
            report.since(&self.report, time);
        }
        let activity = Activity::between(&self.report, &report, time);
        let seconds = time.as_secs_f64().max(f64::MIN_POSITIVE);
        self.now.clear();
        for row in &activity.rows {
            if is_first {
                self.now.push(Now::default());
                continue;
            }
            self.now.push(Now {
                carries: Some(row.bytes as f64 * 8.0 / seconds),
                drops: Some(row.drops),
            });
            let history = self.history.entry(row.server.name.clone()).or_default();
            note(&mut history.in_use, row.server.utilization.unwrap_or(0.0));
            note(&mut history.backlog, row.server.backlog_us.unwrap_or(0.0));
            note(&mut history.drops, row.drops as f64);
        }
        let earlier = (!is_first).then_some(&self.report.classes[..]);
        self.passing = passing(earlier, &report.classes, seconds);
        let is_there = |name: &str| report.servers.iter().any(|server| server.name == name);
        self.history.retain(|name, _| is_there(name));
        let place = selected.and_then(|name| report.servers.iter().position(|server| server.name == name));
        self.selected = place.unwrap_or(0);
        self.report = report;
    }

    /// The selected server.
    pub(super) fn server(&self) -> Option<&ServerReport> {
        self.report.servers.get(self.selected)
    }

    /// What the selected server's knobs are set to.
    pub(super) fn readings(&self) -> Vec<(&'static str, String)> {
        let server = self.server().map_or("", |server| &server.name);
        KNOBS
            .iter()
            .map(|knob| (knob.key, knob.reading(&self.profile, server)))
            .collect()
    }

    /// What a key means now.
    pub(super) fn press(&mut self, key: Key) -> Pressed {
        if self.help && key != Key::Quit {
            self.help = false;
            return Pressed::Shown;
        }
        let last = self.report.servers.len().saturating_sub(1);
        match key {
            Key::Up => self.selected = self.selected.saturating_sub(1),
            Key::Down => self.selected = (self.selected + 1).min(last),
            Key::First => self.selected = 0,
            Key::Last => self.selected = last,
            Key::Left => self.knob = (self.knob + KNOBS.len() - 1) % KNOBS.len(),
            Key::Right => self.knob = (self.knob + 1) % KNOBS.len(),
            Key::Help => self.help = true,
            Key::Quit => return Pressed::Quit,
            Key::Turn(way) => match self.server().map(|server| server.name.clone()) {
                Some(server) => {
                    let knob = self.knob;
                    return self.ask(Ask::Turn { server, knob, way });
                }
                None => self.said = Some(Err("there is no server to turn a knob of".into())),
            },
            Key::Pause => return self.ask(Ask::Pause(!self.report.paused)),
            Key::Undo => return self.ask(Ask::Undo),
        }
        Pressed::Shown
    }

    /// What is out of the ordinary.
    pub(super) fn states(&self) -> Vec<String> {
        let blind = self.blind.iter().map(|why| format!("NOT SEEN: {why}"));
        blind.chain(words::states(&self.report)).collect()
    }

    fn ask(&mut self, ask: Ask) -> Pressed {
        self.waiting += 1;
        Pressed::Ask(ask)
    }

    /// What came of it.
    pub(super) fn hear(&mut self, done: Done) {
        self.waiting = self.waiting.saturating_sub(1);
        self.said = Some(done.said);
        if let Some(profile) = done.profile {
            self.profile = profile;
        }
        if let Some(paused) = done.paused {
            self.report.paused = paused;
        }
    }
}

fn note(of: &mut VecDeque<f64>, value: f64) {
    if of.len() == KEPT {
        of.pop_front();
    }
    of.push_back(value);
}

/// By class and direction; directions that have seen nothing are left out, unless both have.
fn passing(
    earlier: Option<&[ClassReport]>,
    classes: &[ClassReport],
    seconds: f64,
) -> Vec<(String, &'static str, Passing)> {
    let mut rows = Vec::new();
    for class in classes {
        let before = earlier.map(|all| all.iter().find(|before| before.name == class.name));
        let flow = |now: &Flow, before: fn(&ClassReport) -> &Flow, all: Option<Option<&ClassReport>>| {
            let since = |of: fn(&Flow) -> u64| {
                all.map(|found| of(now).saturating_sub(found.map_or(0, |class| of(before(class)))))
            };
            Passing {
                packets: since(|flow| flow.packets).map(|packets| packets as f64 / seconds),
                carries: since(|flow| flow.bytes).map(|bytes| bytes as f64 * 8.0 / seconds),
                drops: since(|flow| flow.dropped),
                delay: now.mean_delay_us,
            }
        };
        let is_silent = class.egress.packets + class.ingress.packets == 0;
        if class.egress.packets > 0 || is_silent {
            let passing = flow(&class.egress, |class| &class.egress, before);
            rows.push((class.name.clone(), "out", passing));
        }
        if class.ingress.packets > 0 {
            let passing = flow(&class.ingress, |class| &class.ingress, before);
            rows.push((class.name.clone(), "in", passing));
        }
    }
    rows
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in crate::top) fn server(name: &str, busy_ms: f64, bytes: u64, tail_drops: u64) -> ServerReport {
        ServerReport {
            name: name.into(),
            packets: bytes / 1000,
            bytes,
            busy_ms,
            tail_drops,
            backlog_us: Some(busy_ms),
            ..ServerReport::default()
        }
    }

    pub(in crate::top) fn report(servers: Vec<ServerReport>) -> Report {
        let flow = |packets| Flow {
            packets,
            wire_packets: packets,
            bytes: 1000 * packets,
            dropped: 0,
            mean_delay_us: (packets > 0).then_some(20_000.0),
            delay_ns: 0,
        };
        let packets = servers.first().map_or(0, |server| server.packets);
        Report {
            id: "run-7".into(),
            interfaces: vec!["eth0".into()],
            pacer: "fq".into(),
            classes: vec![ClassReport {
                name: "all".into(),
                egress: flow(packets),
                ingress: flow(0),
            }],
            servers,
            ..Report::default()
        }
    }

    /// Two looks, 2 s after each other.
    pub(in crate::top) fn model() -> Model {
        let mut model = Model {
            profile: json!({ "servers": {
                "up": { "latency": "40ms", "bandwidth": "10Mbit/s" },
                "down": { "latency": "5ms" },
            } }),
            ..Model::default()
        };
        let down = || server("down", 0.0, 0, 0);
        model.see(
            report(vec![server("up", 100.0, 1_000_000, 7), down()]),
            Duration::ZERO,
        );
        model.see(
            report(vec![server("up", 600.0, 1_250_000, 10), down()]),
            Duration::from_secs(2),
        );
        model
    }

    #[test]
    fn what_was_done_between_two_looks() {
        let model = model();
        // 250 kB in 2 s, 3 more drops, 500 ms busy of 2 s.
        let now = Now {
            carries: Some(1e6),
            drops: Some(3),
        };
        let idle = Now {
            carries: Some(0.0),
            drops: Some(0),
        };
        assert_eq!(model.now, [now, idle]);
        let up = &model.history["up"];
        assert_eq!(
            (up.in_use.clone(), up.drops.clone()),
            ([0.25].into(), [3.0].into())
        );
        assert_eq!(up.backlog, [600.0]);
        let [(class, direction, passing)] = &model.passing[..] else {
            panic!("{:?}", model.passing)
        };
        assert_eq!((&class[..], *direction), ("all", "out"));
        assert_eq!((passing.packets, passing.carries), (Some(125.0), Some(1e6)));
    }

    /// The first look says nothing of now: counts since the beginning would look like a burst.
    #[test]
    fn nothing_is_known_before_the_second_look() {
        let mut model = Model::default();
        model.see(
            report(vec![server("up", 100.0, 1_000_000, 7)]),
            Duration::from_secs(1),
        );
        assert_eq!(model.now, [Now::default()]);
        assert!(model.history.is_empty());
    }

    #[test]
    fn a_history_has_an_end_and_goes_with_its_server() {
        let mut model = model();
        for _ in 0..2 * KEPT {
            model.see(report(vec![server("up", 600.0, 1, 0)]), Duration::from_secs(1));
        }
        assert_eq!(model.history["up"].drops.len(), KEPT);
        assert!(!model.history.contains_key("down"));
    }

    #[test]
    fn the_selection_stays_with_its_server() {
        let mut model = model();
        assert_eq!(model.press(Key::Down), Pressed::Shown);
        assert_eq!(model.press(Key::Down), Pressed::Shown);
        let server = |name| server(name, 0.0, 0, 0);
        model.see(
            report(["new", "up", "down"].map(server).into()),
            Duration::from_secs(1),
        );
        assert_eq!(model.server().unwrap().name, "down");
        model.see(report(vec![server("up")]), Duration::from_secs(1));
        assert_eq!(model.server().unwrap().name, "up");
        model.press(Key::Last);
        model.press(Key::Up);
        assert_eq!(model.selected, 0);
    }

    #[test]
    fn keys_ask_for_changes_of_what_is_selected() {
        let mut model = model();
        model.press(Key::Down);
        model.press(Key::Left);
        let way = Way::Less;
        let (server, knob) = ("down".into(), KNOBS.len() - 1);
        assert_eq!(
            model.press(Key::Turn(way)),
            Pressed::Ask(Ask::Turn { server, knob, way })
        );
        assert_eq!(model.press(Key::Pause), Pressed::Ask(Ask::Pause(true)));
        assert_eq!(model.waiting, 2);
        model.hear(Done {
            said: Ok("paused".into()),
            profile: None,
            paused: Some(true),
        });
        assert_eq!((model.waiting, model.report.paused), (1, true));
        assert_eq!(model.press(Key::Pause), Pressed::Ask(Ask::Pause(false)));
        model.hear(Done {
            said: Err("no".into()),
            profile: Some(json!({ "servers": { "down": { "latency": "9ms" } } })),
            paused: None,
        });
        assert_eq!(model.readings()[0], ("latency", "9ms".into()));
        assert_eq!(model.said, Some(Err("no".into())));
    }

    #[test]
    fn without_a_server_there_is_nothing_to_turn() {
        let mut model = Model::default();
        model.see(report(Vec::new()), Duration::ZERO);
        for key in [Key::Up, Key::Down, Key::Last, Key::Turn(Way::More)] {
            assert_eq!(model.press(key), Pressed::Shown);
        }
        assert!(model.said.unwrap().is_err());
    }

    #[test]
    fn what_is_not_seen_is_said_until_it_is_seen_again() {
        let mut model = model();
        model.blind = Some("no answer".into());
        assert_eq!(model.states(), ["NOT SEEN: no answer"]);
        model.see(report(Vec::new()), Duration::from_secs(1));
        assert!(model.states().is_empty());
    }

    #[test]
    fn any_key_leaves_the_help() {
        let mut model = model();
        model.press(Key::Help);
        assert!(model.help);
        assert_eq!(model.press(Key::Turn(Way::More)), Pressed::Shown);
        assert!(!model.help);
        model.press(Key::Help);
        assert_eq!(model.press(Key::Quit), Pressed::Quit);
    }
}
