//! What a model says, line by line, for screen readers and files: first all, then what is new. Nothing is written over.

use std::collections::HashMap;

use super::{input::KEYS, model::Model, words};

/// Digits of numbers: with two, what stays about the same is not said again.
const DIGITS: u8 = 2;

/// Remembers what it has said.
#[derive(Debug, Default)]
pub(super) struct Plain(HashMap<String, String>);

impl Plain {
    /// What is new since the last call.
    pub(super) fn look(&mut self, model: &Model) -> Vec<String> {
        let mut lines = Vec::new();
        if !model.seen {
            if model.blind.is_some() {
                self.say("", "state", &[("", model.states().join("; "))], &mut lines);
            }
            return lines;
        }
        let report = &model.report;
        let place = format!("{}, pacer {}", report.place(), report.pacer);
        self.say("", &report.id, &[("", place)], &mut lines);
        let mut states = model.states();
        if states.is_empty() {
            states.push("emulates".into());
        }
        self.say("", "state", &[("", states.join("; "))], &mut lines);
        let deadlines = words::deadlines(report);
        for (what, said) in &deadlines {
            // Once: the time runs down anyway.
            if !self.0.contains_key(*what) {
                lines.push(said.clone());
            }
        }
        self.0.retain(|key, _| !words::DEADLINES.contains(&&**key));
        self.0
            .extend(deadlines.into_iter().map(|(what, said)| (what.to_owned(), said)));
        // Before the second look nobody knows what is done now.
        if model.now.iter().any(|now| now.carries.is_none()) {
            return lines;
        }
        for (server, now) in report.servers.iter().zip(&model.now) {
            let mut items = words::server(server, *now, DIGITS).to_vec();
            if let Some(timeline) = &server.timeline {
                // The time goes on anyway.
                let segment = format!("{} of {}", timeline.segment, timeline.segments);
                items.push(("segment", segment));
            }
            self.say("server", &server.name, &items, &mut lines);
        }
        for (name, direction, passing) in &model.passing {
            let subject = format!("class {name} {direction}");
            self.say("class", &subject, &words::class(*passing, DIGITS), &mut lines);
        }
        if let Some(lateness) = &report.lateness {
            let most = words::time(lateness.p99_us, DIGITS);
            self.say("", "lateness", &[("99 % at most", most)], &mut lines);
        }
        lines
    }

    /// The items of a subject that are not as they were said last.
    fn say(&mut self, kind: &str, subject: &str, items: &[(&'static str, String)], lines: &mut Vec<String>) {
        let mut news = Vec::new();
        for (what, value) in items {
            let before = self.0.insert(format!("{kind}\0{subject}\0{what}"), value.clone());
            if before.as_ref() != Some(value) {
                news.push(format!("{what} {value}").trim_start().to_owned());
            }
        }
        if !news.is_empty() {
            lines.push(format!("{subject}: {}", news.join(", ")));
        }
    }
}

/// What is selected, and what it is set to.
pub(super) fn selected(model: &Model) -> String {
    let (key, value) = model.readings().swap_remove(model.knob);
    let server = model.server().map_or("no server", |server| &server.name);
    format!("selected: {server}, {key} {value}")
}

/// What came of the last key.
pub(super) fn said(said: &Result<String, String>) -> String {
    match said {
        Ok(done) => done.clone(),
        Err(why) => format!("not done: {why}"),
    }
}

/// What each letter does: letters are typed, and Enter.
pub(super) fn help() -> Vec<String> {
    let keys = KEYS.iter().map(|(_, letters, _, what)| {
        let letters = letters.iter().map(ToString::to_string).collect::<Vec<_>>();
        format!("{}: {what}", letters.join(" or "))
    });
    ["type a letter, and Enter".to_owned()]
        .into_iter()
        .chain(keys)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::top::model::tests::{model, report, server};

    #[test]
    fn only_what_changed_is_said_again() {
        let mut model = model();
        let mut plain = Plain::default();
        assert_eq!(
            plain.look(&model),
            [
                "run-7: eth0, pacer fq",
                "state: emulates",
                "up: in use 25 %, carries 1 Mbit/s, backlog 600 us, dropped 3",
                "down: in use 0 %, carries 0 bit/s, backlog 0 us, dropped 0",
                "class all out: packets/s 120, carries 1 Mbit/s, dropped 0, delay 20 ms",
            ]
        );
        assert!(plain.look(&model).is_empty());
        let down = server("down", 0.0, 0, 0);
        // As before, to two digits; no more drops.
        let next = report(vec![server("up", 1101.0, 1_500_500, 10), down]);
        model.see(next, Duration::from_secs(2));
        assert_eq!(plain.look(&model), ["up: backlog 1.1 ms, dropped 0"]);
        model.report.paused = true;
        model.report.ends_in_ms = Some(5_000);
        assert_eq!(
            plain.look(&model),
            ["state: PAUSED: traffic passes untouched", "ends in 5 s"]
        );
        model.report.ends_in_ms = Some(4_000);
        assert!(plain.look(&model).is_empty());
    }

    #[test]
    fn nothing_moves_the_cursor() {
        let model = model();
        let mut lines = Plain::default().look(&model);
        lines.push(selected(&model));
        lines.extend(help());
        assert!(
            lines
                .iter()
                .flat_map(|line| line.chars())
                .all(|letter| !letter.is_control())
        );
        assert_eq!(selected(&model), "selected: up, latency 40ms");
    }
}
