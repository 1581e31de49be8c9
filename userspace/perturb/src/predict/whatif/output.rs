//! What `perturb predict whatif` prints.

use std::io::Write;

use perturb_models::whatif::placement::{Placement, ProcessName};
use perturb_models::whatif::snapshot::EventRow;
use perturb_models::whatif::suggest::Suggestion;
use perturb_models::whatif::{Event, Predictor};
use serde::Serialize;

/// The prediction, so far or at the end.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    program_time_us: f64,
    group_time_us: Vec<f64>,
    events: u64,
    messages: Messages,
    /// The most events ever held: the bound on memory.
    most_held: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bus: Option<BusUse>,
    /// With --follow: whether this is the last.
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    last: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows: Option<Vec<Row>>,
}

#[derive(Debug, Serialize)]
struct Messages {
    local: u64,
    remote: u64,
    /// Sent and not received.
    in_flight: u64,
    /// Taken as remote because their receivers were unknown for too long.
    #[serde(skip_serializing_if = "is_zero")]
    assumed_remote: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[derive(Debug, Serialize)]
struct BusUse {
    messages: u64,
    busy_us: f64,
    /// Slots that collisions and back-off took.
    lost_rounds: u64,
    /// The same in time.
    lost_us: f64,
    /// How often a message was given up, and sent again.
    given_up: u64,
}

impl Summary {
    pub(super) fn of(predictor: &Predictor, last: Option<bool>) -> Self {
        let prediction = predictor.prediction();
        let counters = predictor.counters();
        Self {
            program_time_us: prediction.program_time,
            group_time_us: prediction.group_time,
            events: counters.reported,
            messages: Messages {
                local: counters.local,
                remote: counters.remote,
                in_flight: counters.in_flight,
                assumed_remote: counters.assumed_remote,
            },
            most_held: counters.most_held,
            bus: predictor.bus().map(|bus| BusUse {
                messages: bus.messages(),
                busy_us: bus.busy(),
                lost_rounds: bus.lost().slots as u64,
                lost_us: bus.lost().time,
                given_up: bus.lost().given_up,
            }),
            last,
            rows: None,
        }
    }

    /// One line, while events come.
    pub(super) fn line(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(
            out,
            "{:>16.3} us after {} events",
            self.program_time_us, self.events
        )
    }

    /// The whole answer.
    pub(super) fn text(&self, predictor: &Predictor, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "predicted time {:.3} us", self.program_time_us)?;
        let placement = predictor.placement();
        for (group, time) in self.group_time_us.iter().enumerate() {
            let members: Vec<String> = (0..placement.processes() as u32)
                .filter(|process| placement.group(*process) as usize == group)
                .map(|process| placement.name(process).to_string())
                .collect();
            writeln!(
                out,
                "  group {:<4} {time:>16.3} us   processes {}",
                group + 1,
                members.join(" ")
            )?;
        }
        let Messages {
            local,
            remote,
            in_flight,
            assumed_remote,
        } = self.messages;
        writeln!(
            out,
            "{} events, {local} local and {remote} remote messages",
            self.events
        )?;
        if in_flight > 0 {
            writeln!(out, "{in_flight} messages were never received")?;
        }
        if assumed_remote > 0 {
            writeln!(
                out,
                "{assumed_remote} messages of unknown receiver taken as remote; give `to` on sends"
            )?;
        }
        if let Some(bus) = &self.bus {
            let share = if self.program_time_us > 0.0 {
                bus.busy_us / self.program_time_us
            } else {
                0.0
            };
            writeln!(
                out,
                "bus: {} messages, busy {:.3} us ({:.1} %), {:.3} us of it lost to collisions, {} messages given up",
                bus.messages,
                bus.busy_us,
                share * 100.0,
                bus.lost_us,
                bus.given_up
            )?;
        }
        Ok(())
    }
}

/// What leads to a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trigger {
    Start,
    Arriving(Event),
    Reported(Event),
}

/// The state after a step, as fig. 5 prints it.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    row: usize,
    arriving: Option<EventName>,
    reported: Option<EventName>,
    group_time: Vec<f64>,
    events: Vec<EventRow>,
}

#[derive(Debug, Serialize)]
struct EventName {
    process: ProcessName,
    kind: &'static str,
    line: u64,
}

impl Row {
    pub(super) fn of(row: usize, trigger: Trigger, predictor: &Predictor) -> Self {
        let name = |event: Event| EventName {
            process: predictor.placement().name(event.process).clone(),
            kind: event.kind.name(),
            line: event.line,
        };
        let (arriving, reported) = match trigger {
            Trigger::Start => (None, None),
            Trigger::Arriving(event) => (Some(name(event)), None),
            Trigger::Reported(event) => (None, Some(name(event))),
        };
        let group_time = predictor.prediction().group_time;
        Self {
            row,
            arriving,
            reported,
            group_time,
            events: predictor.snapshot(),
        }
    }

    pub(super) fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let what = match (&self.arriving, &self.reported) {
            (Some(event), _) => format!(
                "process {}'s {} of line {} arrives",
                event.process, event.kind, event.line
            ),
            (_, Some(event)) => format!(
                "process {}'s {} of line {} is reported",
                event.process, event.kind, event.line
            ),
            (None, None) => "before the first event".to_owned(),
        };
        let clocks: Vec<String> = self.group_time.iter().map(|time| format!("{time}")).collect();
        writeln!(
            out,
            "row {:<4} {what}; group times {}",
            self.row,
            clocks.join(" ")
        )?;
        for event in &self.events {
            let earliest = event
                .earliest
                .map_or("infinite".to_owned(), |earliest| format!("{earliest}"));
            write!(
                out,
                "         line {:<4} process {:<4} {:<10} earliest {earliest:<10} remaining {:<10}",
                event.line, event.process, event.kind, event.remaining
            )?;
            match event.wait {
                Some(wait) => writeln!(out, " wait {wait}")?,
                None => writeln!(out)?,
            }
        }
        Ok(())
    }
}

/// Ranked placements.
#[derive(Debug, Serialize)]
pub(super) struct Suggestions {
    exhaustive: bool,
    tried: u64,
    suggestions: Vec<Ranked>,
}

#[derive(Debug, Serialize)]
struct Ranked {
    program_time_us: f64,
    groups: Vec<Vec<ProcessName>>,
}

impl Suggestions {
    pub(super) fn of(found: &Suggestion, placement: &Placement, processors: u32) -> Self {
        let ranked = found.ranked.iter().map(|ranked| {
            let mut groups = vec![Vec::new(); processors as usize];
            for (process, group) in ranked.groups.iter().enumerate() {
                groups[*group as usize].push(placement.name(process as u32).clone());
            }
            Ranked {
                program_time_us: ranked.program_time,
                groups,
            }
        });
        Self {
            exhaustive: found.exhaustive,
            tried: found.tried,
            suggestions: ranked.collect(),
        }
    }

    pub(super) fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let how = if self.exhaustive {
            "all there are"
        } else {
            "searched; there may be faster ones"
        };
        writeln!(out, "{} placements tried ({how})", self.tried)?;
        for (rank, ranked) in self.suggestions.iter().enumerate() {
            let groups: Vec<String> = ranked
                .groups
                .iter()
                .map(|group| {
                    let names: Vec<String> = group.iter().map(ProcessName::to_string).collect();
                    format!("[{}]", names.join(" "))
                })
                .collect();
            writeln!(
                out,
                "{:>4} {:>16.3} us   {}",
                rank + 1,
                ranked.program_time_us,
                groups.join(" ")
            )?;
        }
        Ok(())
    }
}
