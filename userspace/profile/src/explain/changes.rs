//! What a timeline or a trace means: the range of each value, and the means of the bandwidth.

use std::{fmt, ops::Range};

use perturb_common::timeline::{End, Gate, Overhead, Rate, Segment, Start, Timeline};
use perturb_common::units::{Nanos, Ticks};
use perturb_quantity::{Duration, Probability};
use serde::Serialize;

use crate::compile::Files;
use crate::compile::timeline::Changes;
use crate::model::{Name, Profile};

/// Means are over this, or a two-thousandth of the whole, ns.
const SECOND: u64 = 1_000_000_000;
const BINS: u64 = 2000;

/// How a server changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeMeaning {
    /// The server.
    pub server: Name,
    /// What its times count from.
    pub start: &'static str,
    /// Its segments: what holds between two changes.
    pub segments: usize,
    /// From the start to the last change, or to where it begins anew.
    pub length: Duration,
    /// Whether it begins anew then; else the last values hold.
    pub repeats: bool,
    /// Bandwidth: the lowest and the highest mean over `mean_over`, and that over all; `None` where there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<[crate::Rate; 3]>,
    /// What means are over.
    pub mean_over: Duration,
    /// The lowest and the highest latency.
    pub latency: [Duration; 2],
    /// The largest independent loss.
    pub loss: Probability,
    /// How long it is down, or stopped for 10 ms or more at a time, until then.
    pub down: Duration,
    /// Whether it is down or stopped from then on.
    pub stays_down: bool,
}

/// A stretch of time in which the values of a server are drawn as constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// When it begins, s.
    pub at: f64,
    /// The mean bandwidth, bit/s; `None` for no limit.
    pub bandwidth: Option<f64>,
    /// The mean gap between packets, s.
    gap: f64,
    /// The largest latency, s.
    pub latency: f64,
    /// The largest loss, a share; 1 if it is down.
    pub loss: f64,
    /// The largest buffer in bytes, and in time, s, if either is limited.
    pub buffer: (Option<f64>, Option<f64>),
}

/// How the servers of `profile` change, each in at most so many stretches: to be drawn. With the time that is drawn, s.
pub fn stretches(profile: &Profile, files: &Files, count: u64) -> Vec<(Name, f64, Vec<Stretch>)> {
    let mut all = Vec::new();
    each(profile, files, |name, timeline| {
        let shown = shown(timeline);
        all.push((
            name.clone(),
            seconds(shown),
            cut(timeline, 0, shown, (shown / count.max(1)).max(1)),
        ));
    });
    all
}

/// How the overhead of hosts changes.
#[derive(Debug, Clone)]
pub struct Overheads {
    /// The time that is drawn, s.
    pub length: f64,
    /// When, s, and o_s and o_r from then on, us.
    pub steps: Vec<(f64, [f64; 2])>,
}

/// How the overhead of hosts changes, if it does, by at most so many steps.
#[must_use]
pub fn overheads(profile: &Profile, files: &Files, count: usize) -> Option<Overheads> {
    let timeline = Changes::new(profile, files).and_then(|changes| changes.of_overhead());
    let Timeline { segments, end, .. } = timeline.ok()??;
    let at = |overhead: &Overhead| seconds(nanos(overhead.at));
    let last = segments.last().map_or(0.0, at);
    let length = match end {
        End::Loop(period) => seconds(nanos(period)),
        End::Hold => last * 1.1 + 1.0,
    };
    let each = segments
        .iter()
        .step_by(segments.len().div_ceil(count.max(1)).max(1));
    let steps = each.map(|one| (at(one), [one.send, one.receive].map(|nanos| nanos as f64 / 1e3)));
    Some(Overheads {
        length,
        steps: steps.collect(),
    })
}

/// The mean bandwidths for full frames, each with its gap, bit/s, of the server at this place in the profile, in `count` bins of so
/// many ns, from `from` ns on since its timeline began; `None` for no limit.
pub fn bandwidths(
    profile: &Profile,
    files: &Files,
    server: usize,
    from: u64,
    bin: u64,
    count: usize,
) -> Vec<Option<f64>> {
    let frame = profile.frame().bytes() as f64 * 8.0;
    let of_frames = |bits: Option<f64>, gap: f64| {
        let rate = frame / (bits.map_or(0.0, |bits| frame / bits) + gap);
        rate.is_finite().then_some(rate)
    };
    let timeline = Changes::new(profile, files).and_then(|changes| changes.of_server(server));
    if let Ok(Some(timeline)) = timeline {
        let stretches = cut(&timeline, from, bin.saturating_mul(count as u64), bin);
        let each = stretches.iter();
        return each
            .map(|stretch| of_frames(stretch.bandwidth, stretch.gap))
            .collect();
    }
    let constant = profile.servers.get(server).and_then(|(_, server)| {
        let rate = server.bandwidth.map(|rate| rate.bits_per_second() as f64);
        of_frames(rate, seconds(server.gap.nanos()))
    });
    vec![constant; count]
}

pub(super) fn meanings(profile: &Profile, files: &Files) -> Vec<ChangeMeaning> {
    let mut meanings = Vec::new();
    each(profile, files, |name, timeline| {
        meanings.push(meaning(name, timeline));
    });
    meanings
}

/// Servers that change; what could not be read or laid out is reported elsewhere.
fn each(profile: &Profile, files: &Files, mut of: impl FnMut(&Name, &Timeline)) {
    let Ok(changes) = Changes::new(profile, files) else {
        return;
    };
    for (index, (name, _)) in profile.servers.iter().enumerate() {
        if let Ok(Some(timeline)) = changes.of_server(index) {
            of(name, &timeline);
        }
    }
}

fn meaning(name: &Name, timeline: &Timeline) -> ChangeMeaning {
    let (length, repeats) = match timeline.end {
        End::Loop(period) => (nanos(period), true),
        End::Hold => (last(timeline), false),
    };
    let over = (length / BINS).max(SECOND);
    let whole = cut(timeline, 0, length.max(1), over);
    // What holds then has no end, and no part in a mean until then.
    let held = timeline.segments.last().filter(|_| !repeats);
    let after = held.map(|segment| Some(bits_per_second(segment)).filter(|bits| bits.is_finite()));
    let means = whole.iter().map(|stretch| stretch.bandwidth);
    let limited: Option<Vec<f64>> = means.chain(after).collect();
    let rate = |bits: f64| crate::Rate::from_bits_per_second(rounded(bits.round() as u64));
    let time = |nanos: u64| Duration::from_nanos(rounded(nanos));
    let latencies = || timeline.segments.iter().map(|segment| nanos(segment.latency));
    let lasts = |span: &Range<u64>| nanos(Ticks(span.end - span.start));
    let down = spans(timeline, 0, length).filter(|(segment, span)| {
        segment.gate == Gate::Drop || (segment.rate == Rate::Stopped && lasts(span) >= SECOND / 100)
    });
    ChangeMeaning {
        server: name.clone(),
        start: match timeline.start {
            Start::Apply => "apply",
            Start::FirstPacket => "first-packet",
            Start::At(_) => "an instant",
        },
        segments: timeline.segments.len(),
        length: Duration::from_nanos(length),
        repeats,
        bandwidth: limited.filter(|means| !means.is_empty()).map(|means| {
            let (low, high) = means.iter().fold((f64::MAX, 0.0f64), |(low, high), &mean| {
                (low.min(mean), high.max(mean))
            });
            let all = cut(timeline, 0, length.max(1), u64::MAX)
                .first()
                .and_then(|one| one.bandwidth);
            [low, high, all.unwrap_or(high)].map(rate)
        }),
        mean_over: Duration::from_nanos(over),
        latency: [latencies().min(), latencies().max()].map(|value| time(value.unwrap_or(0))),
        loss: {
            let largest = timeline
                .segments
                .iter()
                .map(|segment| segment.loss.0)
                .max()
                .unwrap_or(0);
            let above = if largest == 0 { 0 } else { u64::from(largest) + 1 };
            Probability::from_billionths((above * Probability::ONE.billionths() + (1 << 31)) >> 32)
        },
        down: time(down.map(|(_, span)| lasts(&span)).sum()),
        stays_down: held.is_some_and(|segment| bits_per_second(segment) == 0.0),
    }
}

/// The bandwidth in force, bit/s; infinite for no limit.
fn bits_per_second(segment: &Segment) -> f64 {
    match segment.rate {
        _ if segment.gate == Gate::Drop => 0.0,
        Rate::PerByte(gap) => 8e9 * f64::from(1 << 20) / gap.0 as f64,
        Rate::Stopped => 0.0,
        Rate::Free => f64::INFINITY,
    }
}

/// To four digits: what is drawn at random, or a mean, has more than are of use.
fn rounded(value: u64) -> u64 {
    let digits = value.checked_ilog10().unwrap_or(0);
    let unit = 10u64.pow(digits.saturating_sub(3));
    (value + unit / 2) / unit * unit
}

fn nanos(ticks: Ticks) -> u64 {
    ticks.nanos().0
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn last(timeline: &Timeline) -> u64 {
    timeline.segments.last().map_or(0, |segment| nanos(segment.at))
}

/// What of a timeline is drawn, ns: all of it, and a little of what holds then.
fn shown(timeline: &Timeline) -> u64 {
    match timeline.end {
        End::Loop(period) => nanos(period),
        End::Hold => last(timeline) / 10 * 11 + SECOND,
    }
}

/// Segments, and the ticks that each lasts, in so many ns from `from` on. An opportunity lasts less than a whole number of
/// ns.
fn spans(timeline: &Timeline, from: u64, length: u64) -> impl Iterator<Item = (&Segment, Range<u64>)> {
    let [from, until] = [from, from.saturating_add(length)].map(|nanos| Nanos(nanos).ticks().0);
    let period = match timeline.end {
        End::Loop(period) => period.0.max(1),
        End::Hold => u64::MAX,
    };
    let ends = timeline.segments.iter().skip(1).map(|segment| segment.at.0);
    let segments = timeline.segments.iter().zip(ends.chain([period]));
    let turns = (from / period..=until / period).map(move |turn| turn * period);
    turns
        .flat_map(move |turn| {
            segments.clone().map(move |(segment, end)| {
                let (begin, end) = (turn.saturating_add(segment.at.0), turn.saturating_add(end));
                (segment, begin.max(from)..end.min(until))
            })
        })
        .filter(|(_, span)| !span.is_empty())
}

/// Stretches of `bin` ns, from `from` ns on.
fn cut(timeline: &Timeline, from: u64, length: u64, bin: u64) -> Vec<Stretch> {
    let bin = bin.min(length);
    let count = length.div_ceil(bin);
    // Bits that may pass in each, whether there is a limit, and the largest values.
    let mut bits = vec![0.0f64; count as usize];
    let empty = Stretch {
        at: 0.0,
        bandwidth: None,
        gap: 0.0,
        latency: 0.0,
        loss: 0.0,
        buffer: (None, None),
    };
    let mut stretches = vec![empty; count as usize];
    let first = Nanos(from).ticks().0;
    for (segment, span) in spans(timeline, from, length) {
        let (mut begin, end) = (span.start - first, span.end - first);
        let tick_bin = bin.saturating_mul(64);
        while begin < end {
            let index = begin / tick_bin;
            let until = end.min((index + 1).saturating_mul(tick_bin));
            let (Some(stretch), Some(bits)) =
                (stretches.get_mut(index as usize), bits.get_mut(index as usize))
            else {
                break;
            };
            *bits += (until - begin) as f64 / 64e9 * bits_per_second(segment);
            // The sum over time, until the bin's length is known.
            stretch.gap += (until - begin) as f64 / 64e9 * seconds(nanos(segment.gap));
            let down = segment.gate == Gate::Drop;
            let loss = f64::from(segment.loss.0) / f64::from(u32::MAX);
            stretch.latency = stretch.latency.max(seconds(nanos(segment.latency)));
            stretch.loss = stretch.loss.max(if down { 1.0 } else { loss });
            let larger = |one: Option<f64>, other: f64| Some(one.map_or(other, |one| one.max(other)));
            match segment.room {
                perturb_common::timeline::Room::Bytes(bytes) => {
                    stretch.buffer.0 = larger(stretch.buffer.0, bytes as f64);
                }
                perturb_common::timeline::Room::Wait(wait) => {
                    stretch.buffer.1 = larger(stretch.buffer.1, seconds(nanos(wait)));
                }
                perturb_common::timeline::Room::Unlimited => {}
            }
            begin = until;
        }
    }
    for ((index, stretch), bits) in (0..).zip(&mut stretches).zip(bits) {
        let begin = index * bin;
        stretch.at = seconds(begin);
        let length = seconds(bin.min(length - begin));
        stretch.bandwidth = bits.is_finite().then(|| bits / length);
        stretch.gap /= length;
    }
    stretches
}

impl ChangeMeaning {
    /// Whether a trace's units are doubtful: nobody records access lines below 30 kbit/s or above 3 Gbit/s, or latencies above
    /// 5 s; and entries last from 100 us to 10 min.
    pub(super) fn is_suspicious(&self, profile: &Profile) -> bool {
        let traced = |(name, server): &(Name, crate::Server)| *name == self.server && server.trace.is_some();
        if !profile.servers.iter().any(traced) {
            return false;
        }
        let mean = self.bandwidth.map(|[.., mean]| mean.bits_per_second());
        let entry = self.length.nanos() / self.segments.max(1) as u64;
        mean.is_some_and(|mean| !(30_000..=3_000_000_000).contains(&mean))
            || self.latency[1] > Duration::from_millis(5000)
            || !(SECOND / 10_000..=600 * SECOND).contains(&entry)
    }
}

impl fmt::Display for ChangeMeaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, length, .. } = self;
        let end = if self.repeats {
            "then anew"
        } else {
            "then it holds"
        };
        write!(f, "Server `{server}` changes: {length}, {end}; ")?;
        match self.start {
            "apply" => f.write_str("from when it is applied. ")?,
            "first-packet" => f.write_str("from the first packet. ")?,
            _ => f.write_str("from an instant. ")?,
        }
        match self.bandwidth {
            Some([low, high, mean]) if low == high => write!(f, "Bandwidth {mean}. ")?,
            Some([low, high, mean]) => {
                let (over, until) = (self.mean_over, if self.repeats { "" } else { " until then" });
                write!(
                    f,
                    "Bandwidth {mean} in the mean{until}, {low} to {high} over {over}. "
                )?;
            }
            None => {}
        }
        let [low, high] = self.latency;
        if low == high {
            write!(f, "Latency {low}.")?;
        } else {
            write!(f, "Latency {low} to {high}.")?;
        }
        if self.loss > Probability::ZERO {
            write!(f, " Loss up to {}.", self.loss)?;
        }
        if self.down > Duration::ZERO {
            write!(f, " Down or stopped for {}.", self.down)?;
        }
        if self.stays_down {
            f.write_str(" Nothing passes from then on.")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use perturb_common::units::{GapPerByte, TICK_SHIFT};

    use super::*;
    use crate::recording::Format;

    fn said(text: &str, files: &Files) -> String {
        let meanings = meanings(&crate::parse(text).unwrap(), files);
        meanings.iter().map(ChangeMeaning::to_string).collect()
    }

    #[test]
    fn what_holds_for_ever_is_said() {
        let wan = "version: 1\nservers: { wan: { bandwidth: 100Mbit/s } }\nclasses: [{ name: all, egress: [wan] }]\n";
        let steps = |steps: &str| said(&format!("{wan}timeline: {{ {steps} }}\n"), &Files::default());
        let falls = "{ at: 2s, server: wan, bandwidth: 5Mbit/s }";
        let text = steps(&format!("steps: [{falls}]"));
        let expected = "Bandwidth 100Mbit/s in the mean until then, 5Mbit/s to 100Mbit/s over 1s.";
        assert!(text.contains(expected), "{text}");
        // The end of a repetition is no such thing.
        let text = steps(&format!("repeat: 4s, steps: [{falls}]"));
        assert!(
            text.contains("Bandwidth 52.5Mbit/s in the mean, 5Mbit/s to 100Mbit/s over 1s."),
            "{text}"
        );
        // A recording that ends with nothing.
        let traced = wan.replace("bandwidth: 100Mbit/s", "trace: { file: a.csv }");
        let recorded = crate::recording::read("time [s],bandwidth [Mbit/s]\n0,10\n2,0\n", Format::Csv);
        let mut files = Files::default();
        files
            .traces
            .insert(("a.csv".to_owned(), Format::Csv), recorded.unwrap().into());
        let text = said(&traced, &files);
        assert!(
            text.contains("0bit/s to 10Mbit/s") && text.contains("Nothing passes from then on."),
            "{text}"
        );
    }

    #[test]
    fn full_frames_pass_with_their_gaps() {
        let of = |keys: &str, steps: &str| {
            let server = format!(
                "version: 1\nservers: {{ s: {{ {keys} }} }}\nclasses: [{{ name: all, egress: [s] }}]\n"
            );
            let profile = crate::parse(&format!("{server}{steps}")).unwrap();
            let each = bandwidths(&profile, &Files::default(), 0, 0, SECOND, 2);
            each.into_iter()
                .map(|bits| bits.map(f64::round))
                .collect::<Vec<_>>()
        };
        // 121.12 us and 100 us for 12112 bits.
        let both = Some(54_775_687.0);
        assert_eq!(of("bandwidth: 100Mbit/s, gap: 100us", ""), [both; 2]);
        assert_eq!(of("gap: 100us", ""), [Some(121_120_000.0); 2]);
        assert_eq!(of("bandwidth: 100Mbit/s", ""), [Some(100e6); 2]);
        assert_eq!(of("latency: 1ms", ""), [None; 2]);
        let steps = "timeline: { steps: [{ at: 1s, server: s, gap: 100us }] }\n";
        assert_eq!(of("bandwidth: 100Mbit/s", steps), [Some(100e6), both]);
        assert_eq!(of("latency: 1ms", steps), [None, Some(121_120_000.0)]);
    }

    #[test]
    fn a_burst_of_less_than_whole_nanoseconds_counts_in_full() {
        let segment = |at, rate| Segment {
            at: Ticks(at),
            rate,
            ..Segment::IDLE
        };
        // 1514 bytes, one in a tick, before each ms: 12.112 Mbit/s.
        let second = Nanos(SECOND).ticks();
        let of_ms = |number: u64| {
            let end = number * second.0 / 1000;
            let burst = Rate::PerByte(GapPerByte(1 << (20 - TICK_SHIFT)));
            [segment(end - 1514, burst), segment(end, Rate::Stopped)]
        };
        let mut segments = vec![segment(0, Rate::Stopped)];
        segments.extend((1..=1000).flat_map(of_ms));
        segments.pop();
        let timeline = Timeline {
            start: Start::Apply,
            segments,
            end: End::Loop(second),
        };
        // From the middle of a turn into the next ones: a burst in each ms.
        let bins = cut(&timeline, SECOND / 2, 1_500_000_000, SECOND);
        assert_eq!(bins.len(), 2);
        for bin in &bins {
            let bits = bin.bandwidth.unwrap();
            assert!((bits / 12.112e6 - 1.0).abs() < 1e-9, "{bins:?}");
        }
        let name = Name::new("radio").unwrap();
        let bandwidth = meaning(&name, &timeline).bandwidth.unwrap();
        assert_eq!(bandwidth.map(|rate| rate.to_string()), ["12.11Mbit/s"; 3]);
    }
}
