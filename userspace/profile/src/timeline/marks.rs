//! When the steps of a timeline take effect, in words. Traces are not steps.

use perturb_quantity::{Duration, Probability, Rate, Size};

use super::effects::Laid;
use super::lanes::Column;
use super::{Step, Subject};
use crate::model::{Profile, ServerId};

/// Names of servers in a line.
const NAMES: usize = 4;

/// The moments of a timeline at which steps begin or end.
#[derive(Debug)]
pub struct Marks<'p> {
    profile: &'p Profile,
    laid: Laid<'p>,
    /// Those of a turn of the timeline, by time, ns since it began.
    moments: Vec<(u64, What)>,
}

/// What happens at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The timeline begins anew.
    Anew,
    /// A step's turn ends.
    Ends { step: usize, turn: u64 },
    /// A step's turn begins, and lasts so long.
    Begins {
        step: usize,
        turn: u64,
        lasts: Option<u64>,
    },
    /// The timeline is over.
    Over,
}

impl<'p> Marks<'p> {
    /// Those of a profile whose topology has been written out; `None` if its timeline has no steps.
    #[must_use]
    pub fn of(profile: &'p Profile) -> Option<Self> {
        let laid = Laid::new(&profile.timeline, profile.seed).ok()?;
        let limit = laid.period.or(laid.end);
        let mut moments = Vec::new();
        for (step, (_, effects)) in laid.steps.iter().enumerate() {
            let next = effects.iter().skip(1).map(|effect| Some(effect.begin));
            for (effect, next) in effects.iter().zip(next.chain([None])) {
                let (turn, begin) = (effect.turn, effect.begin);
                let lasts = effect.end.map(|end| end.saturating_sub(begin));
                moments.push((begin, What::Begins { step, turn, lasts }));
                // Unless it comes again before, or something else ends.
                let ends = effect.end.filter(|end| next.is_none_or(|next| *end < next));
                let ends = ends.filter(|end| limit.is_none_or(|limit| *end < limit));
                moments.extend(ends.map(|end| (end, What::Ends { step, turn })));
            }
        }
        if moments.is_empty() {
            return None;
        }
        match (laid.period, laid.end) {
            (Some(_), _) => moments.push((0, What::Anew)),
            (None, Some(end)) => moments.push((end, What::Over)),
            (None, None) => {}
        }
        moments.sort_unstable();
        Some(Self {
            profile,
            laid,
            moments,
        })
    }

    /// The number of the first one that is not before `since`, ns since the timeline began.
    #[must_use]
    pub fn first_from(&self, since: u64) -> u64 {
        let (turn, since) = match self.laid.period {
            Some(period) => (since / period, since % period),
            None => (0, since),
        };
        let before = self.moments.partition_point(|&(at, _)| at < since) as u64;
        let number = turn * self.moments.len() as u64 + before;
        // It does not begin anew when it begins.
        number.max(u64::from(self.laid.period.is_some()))
    }

    /// When the one of this number is, ns since the timeline began.
    #[must_use]
    pub fn at(&self, number: u64) -> Option<u64> {
        let (turn, (at, _)) = self.moment(number)?;
        let passed = self.laid.period.unwrap_or(0).checked_mul(turn)?;
        passed.checked_add(*at)
    }

    /// What happens then.
    #[must_use]
    pub fn said(&self, number: u64) -> String {
        match self.moment(number) {
            Some((_, (_, What::Anew))) => "the timeline begins anew".to_owned(),
            Some((_, (_, What::Over))) => "the timeline is over".to_owned(),
            Some((_, &(_, What::Ends { step, turn }))) => {
                self.of_step(step, turn, |what, _| format!("no longer {what}"))
            }
            Some((_, &(_, What::Begins { step, turn, lasts }))) => self.of_step(step, turn, |what, step| {
                let over = Some(step.over).filter(|over| *over > Duration::ZERO);
                let over = over.map(|over| format!(" over {over}"));
                let lasts = lasts.map(|lasts| format!(" for {}", Duration::from_nanos(lasts)));
                format!("{what}{}{}", over.unwrap_or_default(), lasts.unwrap_or_default())
            }),
            None => String::new(),
        }
    }

    fn moment(&self, number: u64) -> Option<(u64, &(u64, What))> {
        let count = self.moments.len() as u64;
        let turn = number / count;
        if turn > 0 && self.laid.period.is_none() {
            return None;
        }
        Some((turn, self.moments.get((number % count) as usize)?))
    }

    fn of_step(&self, index: usize, turn: u64, say: impl FnOnce(&str, &Step) -> String) -> String {
        let Some((step, _)) = self.laid.steps.get(index) else {
            return String::new();
        };
        let changed = self.laid.changed(index, step, turn);
        let what: Vec<String> = changed
            .iter()
            .map(|&(column, value)| value_of(column, value))
            .collect();
        format!("{}: {}", self.subject(&step.subject), say(&what.join(", "), step))
    }

    fn subject(&self, subject: &Subject) -> String {
        let name = |id: &ServerId| self.profile.server(*id).map(|(name, _)| name.to_string());
        match subject {
            Subject::Servers(ids) => {
                let names: Vec<String> = ids.iter().filter_map(name).collect();
                match names.get(..NAMES).filter(|_| names.len() > NAMES + 1) {
                    Some(first) => format!("{} and {} more", first.join(", "), names.len() - NAMES),
                    None => names.join(", "),
                }
            }
            Subject::Overhead => "overhead".to_owned(),
            // They are servers once the topology is written out.
            Subject::Links(_) | Subject::Level(_) | Subject::Partition(_) => String::new(),
        }
    }
}

fn value_of(column: Column, value: u64) -> String {
    let time = Duration::from_nanos(value);
    match column {
        Column::Bandwidth => format!("bandwidth {}", Rate::from_bits_per_second(value)),
        Column::Latency => format!("latency {time}"),
        Column::Gap => format!("gap {time}"),
        Column::Loss => format!("loss {}", Probability::from_billionths(value)),
        Column::Jitter => format!("jitter {time}"),
        Column::BufferBytes => format!("buffer {}", Size::from_bytes(value)),
        Column::BufferDelay => format!("buffer {time}"),
        Column::Down if value == 1 => "down".to_owned(),
        Column::Down => "down, and holds packets".to_owned(),
        Column::Send => format!("send {time}"),
        Column::Receive => format!("receive {time}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of them.
    fn said(timeline: &str, from: u64, count: usize) -> Vec<String> {
        let text = format!(
            "version: 1\nservers: {{ wan: {{ latency: 10ms, bandwidth: 1Gbit/s }}, lan: {{}} }}\n\
             classes: [{{ name: all, egress: [wan, lan] }}]\ntimeline: {{ {timeline} }}\n"
        );
        let profile = crate::parse(&text).unwrap();
        let marks = Marks::of(&profile).unwrap();
        let numbers = marks.first_from(from)..;
        let at = numbers.map_while(|number| Some((marks.at(number)?, number)));
        at.take(count)
            .map(|(at, number)| format!("{at} {}", marks.said(number)))
            .collect()
    }

    #[test]
    fn steps_begin_and_end() {
        let steps = "steps: [{ at: 1us, server: wan, latency: 50ms, loss: 1% }, { at: 5us, server: [wan, lan], down: 2us }, \
                     { at: 9us, server: wan, bandwidth: 5Mbit/s, over: 2us }, { at: 6us, overhead: { send: 1us, receive: 2us } }]";
        assert_eq!(
            said(steps, 0, 9),
            [
                "1000 wan: latency 50ms, loss 1%",
                "5000 wan, lan: down for 2us",
                "6000 overhead: send 1us, receive 2us",
                "7000 wan, lan: no longer down",
                "9000 wan: bandwidth 5Mbit/s over 2us",
            ]
        );
        assert_eq!(
            said(&format!("end: 20us, {steps}"), 20_000, 9),
            ["20000 the timeline is over"]
        );
    }

    #[test]
    fn what_repeats_has_no_end() {
        // It comes again as soon as it ends: that is one end less.
        let steps = "steps: [{ at: 0s, server: wan, latency: 1ms, every: 4us, for: 4us, times: 2 }]";
        let repeats = format!("repeat: 20us, {steps}");
        let first = [
            "0 wan: latency 1ms for 4us",
            "4000 wan: latency 1ms for 4us",
            "8000 wan: no longer latency 1ms",
        ];
        assert_eq!(said(steps, 0, 9), first);
        assert_eq!(said(&repeats, 0, 3), first);
        assert_eq!(
            said(&repeats, 10_000, 3),
            [
                "20000 the timeline begins anew",
                "20000 wan: latency 1ms for 4us",
                "24000 wan: latency 1ms for 4us"
            ]
        );
        let late = 400 * 365 * 86_400 * 1_000_000_000;
        assert_eq!(
            said(&repeats, late, 1),
            [format!("{late} the timeline begins anew")]
        );
    }
}
