//! Timelines and traces as segments ([`perturb_common::timeline`]).
//!
//! An opportunity of mahimahi's is a rate of one tick per byte that lasts for one full frame, header included, and ends
//! at its millisecond: a packet of 1500 bytes that waits leaves then. Between opportunities the server is stopped.

use perturb_common::{
    abi::{SERVER_FATE, SERVER_KEEP_ORDER, ServerConfig},
    fate::Chance,
    timeline::{self as wire, Gate, Overhead, Rate, Room, Segment},
    units::{GapPerByte, Ticks},
};
use perturb_quantity::{Duration, Probability};

use super::{CompileError, Files, gap_per_byte, ticks};
use crate::keys::FRAME;
use crate::model::{Distribution, Name, Profile, Server, ServerId, Volume};
use crate::recording::{Format, Recording, Track};
use crate::timeline::effects::{Conflict, Laid};
use crate::timeline::lanes::{Column, Values};
use crate::timeline::{Down, End, Start, Subject, Timeline, Trace};

/// One tick per byte, as G.
const TICK_PER_BYTE: GapPerByte = GapPerByte(1 << (20 - perturb_common::units::TICK_SHIFT));

/// What lays out the timelines of a profile.
pub(crate) struct Changes<'p> {
    profile: &'p Profile,
    files: &'p Files,
    laid: Laid<'p>,
}

impl<'p> Changes<'p> {
    pub(crate) fn new(profile: &'p Profile, files: &'p Files) -> Result<Self, CompileError> {
        Ok(Self {
            profile,
            files,
            laid: Laid::new(&profile.timeline, profile.seed).map_err(|conflict| refused(&conflict))?,
        })
    }

    /// How a server changes, if it does.
    pub(crate) fn of_server(&self, index: usize) -> Result<Option<wire::Timeline>, CompileError> {
        let Some((name, server)) = self.profile.servers.get(index) else {
            return Ok(None);
        };
        if let Some(trace) = &server.trace {
            return self.traced(name, server, trace).map(Some);
        }
        let Some(id) = ServerId::new(index) else {
            return Ok(None);
        };
        let subjects = &self.profile.timeline.steps;
        if !subjects.iter().any(|step| step.subject.has(id)) {
            return Ok(None);
        }
        let base = Values::of(server, &self.profile.overhead);
        let states = self
            .laid
            .states(base, |subject| subject.has(id))
            .map_err(|conflict| refused(&conflict))?;
        let segments = states.iter().map(|&(at, values)| segment(at, &values));
        Ok(Some(wire::Timeline {
            start: start(&self.profile.timeline),
            segments: segments.collect(),
            end: self.end(),
        }))
    }

    /// How the overheads change, if they do.
    pub(crate) fn of_overhead(&self) -> Result<Option<wire::Timeline<Overhead>>, CompileError> {
        let changes = |subject: &Subject| *subject == Subject::Overhead;
        let steps = &self.profile.timeline.steps;
        if !steps.iter().any(|step| changes(&step.subject)) {
            return Ok(None);
        }
        let base = Values::of(&Server::default(), &self.profile.overhead);
        let states = self
            .laid
            .states(base, changes)
            .map_err(|conflict| refused(&conflict))?;
        let segments = states.iter().map(
            |&(
                at,
                Values {
                    overhead: [send, receive],
                    ..
                },
            )| Overhead {
                at: ticks(Duration::from_nanos(at)),
                send,
                receive,
            },
        );
        Ok(Some(wire::Timeline {
            start: start(&self.profile.timeline),
            segments: segments.collect(),
            end: self.end(),
        }))
    }

    /// The shape of a server's jitter: its own, or, if only a step or a trace gives it one, what a scale alone means.
    pub(crate) fn distribution<'s>(
        &self,
        server: &'s Server,
        config: &ServerConfig,
        timelines: &[wire::Timeline],
    ) -> Option<&'s Distribution> {
        let own = server.jitter.as_ref().map(|jitter| &jitter.distribution);
        let timeline = timelines.get(config.timeline as usize);
        let jitters =
            |timeline: &wire::Timeline| timeline.segments.iter().any(|segment| segment.jitter_scale > 0);
        let meant = match &server.trace {
            // Its jitter is a standard deviation.
            Some(trace) if trace.format == Format::TheaterQ => &Distribution::Normal,
            _ => &Distribution::Uniform,
        };
        own.or_else(|| timeline.is_some_and(jitters).then_some(meant))
    }

    fn end(&self) -> wire::End {
        self.laid.period.map_or(wire::End::Hold, |period| {
            wire::End::Loop(ticks(Duration::from_nanos(period)))
        })
    }

    fn traced(&self, name: &Name, server: &Server, trace: &Trace) -> Result<wire::Timeline, CompileError> {
        let missing = || CompileError::NoFile {
            server: name.clone(),
            file: trace.file.clone(),
        };
        let key = (trace.file.clone(), trace.format);
        let recording = self.files.traces.get(&key).ok_or_else(missing)?;
        let length = ticks(Duration::from_nanos(recording.length));
        let offset = ticks(trace.offset);
        if offset >= length {
            return Err(CompileError::Offset {
                server: name.clone(),
                length: Duration::from_nanos(recording.length),
            });
        }
        let base = Values::of(server, &self.profile.overhead);
        let mut segments = play(recording, base, trace.scale);
        let at_end = trace
            .at_end
            .unwrap_or(if recording.endless { End::Loop } else { End::Hold });
        begin_at(&mut segments, offset, (at_end == End::Loop).then_some(length));
        let end = match at_end {
            End::Hold => wire::End::Hold,
            End::Loop => wire::End::Loop(length),
            End::Clear => {
                let mut constant = segment(0, &base);
                constant.at = Ticks(length.0 - offset.0);
                segments.push(constant);
                wire::End::Hold
            }
        };
        Ok(wire::Timeline {
            start: start(&self.profile.timeline),
            segments,
            end,
        })
    }
}

/// The flags of a server that changes: packets keep their order where the latency falls, and draw where there is a chance.
pub(super) fn flags(server: &Server, timeline: &wire::Timeline) -> u32 {
    let reorders = server.jitter.as_ref().is_some_and(|jitter| jitter.reorder);
    let order = if reorders { 0 } else { SERVER_KEEP_ORDER };
    let fate = if timeline.decides(ticks(server.latency)) {
        SERVER_FATE
    } else {
        0
    };
    order | fate
}

fn refused(conflict: &Conflict) -> CompileError {
    CompileError::Step {
        step: conflict.step + 1,
        why: conflict.why.said(|other| format!("place {}", other + 1)),
        remedy: conflict.why.remedy(),
    }
}

fn start(timeline: &Timeline) -> wire::Start {
    match timeline.start {
        Start::Apply => wire::Start::Apply,
        Start::FirstPacket => wire::Start::FirstPacket,
        Start::At(nanos) => wire::Start::At(nanos),
    }
}

/// What holds from `at` ns on.
fn segment(at: u64, values: &Values) -> Segment {
    let time = |nanos| ticks(Duration::from_nanos(nanos));
    Segment {
        at: time(at),
        gap: time(values.gap),
        rate: match (values.down, values.bandwidth) {
            (Some(Down::Hold), _) | (_, 0) => Rate::Stopped,
            (_, Column::UNLIMITED) => Rate::Free,
            (_, bits) => Rate::PerByte(gap_per_byte(crate::Rate::from_bits_per_second(bits))),
        },
        latency: time(values.latency),
        room: match values.buffer {
            None => Room::Unlimited,
            Some(Volume::Bytes(size)) => Room::Bytes(size.bytes()),
            Some(Volume::Delay(delay)) => Room::Wait(ticks(delay)),
        },
        loss: Chance::from_parts_per_billion(values.loss),
        jitter_scale: time(values.jitter).0,
        gate: match values.down {
            Some(Down::Drop) => Gate::Drop,
            _ => Gate::Open,
        },
    }
}

/// A recording as segments, the first at 0.
fn play(recording: &Recording, base: Values, scale: Probability) -> Vec<Segment> {
    let scaled = |value: u64| {
        let whole = u128::from(Probability::ONE.billionths());
        let value = (u128::from(value) * u128::from(scale.billionths()) + whole / 2) / whole;
        u64::try_from(value).unwrap_or(u64::MAX)
    };
    match &recording.track {
        Track::Opportunities(at) => bursts(at, &base, |count| scaled(count * FRAME.bytes())),
        Track::Samples { at, columns } => {
            let mut values = base;
            let mut segments: Vec<Segment> = Vec::with_capacity(at.len());
            for (index, &at) in at.iter().enumerate() {
                for (column, of_column) in columns {
                    let value = of_column.get(index).copied().unwrap_or(0);
                    let rated = *column == Column::Bandwidth && value != Column::UNLIMITED;
                    values.set(*column, if rated { scaled(value) } else { value });
                }
                segments.push(segment(at, &values));
            }
            segments
        }
    }
}

/// Opportunities at these instants, ns, as many bytes each as `bytes` says for their number; they do not overlap.
fn bursts(at: &[u64], base: &Values, bytes: impl Fn(u64) -> u64) -> Vec<Segment> {
    let like = segment(0, base);
    let stopped = |at: Ticks| Segment {
        at,
        rate: Rate::Stopped,
        ..like
    };
    let mut segments = vec![stopped(Ticks(0))];
    let mut free = Ticks(0);
    for group in at.chunk_by(|one, other| one == other) {
        let length = bytes(group.len() as u64);
        let end = group
            .first()
            .map_or(Ticks(0), |&at| ticks(Duration::from_nanos(at)));
        let begin = Ticks(end.0.saturating_sub(length).max(free.0));
        if segments.last().is_some_and(|last| last.at == begin) {
            segments.pop();
        }
        segments.push(Segment {
            at: begin,
            rate: Rate::PerByte(TICK_PER_BYTE),
            ..like
        });
        free = Ticks(begin.0.saturating_add(length));
        segments.push(stopped(free));
    }
    segments
}

/// Lets `segments` begin at `offset`; what is before comes again at the end of one that loops. Nothing is at its period.
fn begin_at(segments: &mut Vec<Segment>, offset: Ticks, period: Option<Ticks>) {
    if let Some(period) = period {
        segments.retain(|segment| segment.at < period);
    }
    if offset.0 == 0 {
        return;
    }
    let split = segments.partition_point(|segment| segment.at <= offset);
    let mut later = segments.split_off(split);
    let Some(&in_force) = segments.last() else {
        return;
    };
    for segment in &mut later {
        segment.at.0 -= offset.0;
    }
    later.insert(
        0,
        Segment {
            at: Ticks(0),
            ..in_force
        },
    );
    if let Some(period) = period {
        // One that begins at the offset is there already.
        let earlier = segments.iter().filter(|segment| segment.at < offset);
        later.extend(earlier.map(|segment| Segment {
            at: Ticks(segment.at.0 + period.0 - offset.0),
            ..*segment
        }));
    }
    *segments = later;
}

#[cfg(test)]
mod tests;
