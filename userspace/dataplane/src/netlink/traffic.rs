//! Qdiscs and the filters at them.

use std::collections::BTreeSet;

use netlink_packet_core::{DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcFilterBpfOption, TcHandle, TcMessage, TcOption},
};
use serde::{Deserialize, Serialize};

use super::{Netlink, Result};

/// Options of sch_fq as a hold device wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FqOptions {
    /// log2 of the number of hash buckets, over all queues.
    pub buckets_log: u32,
    /// Longest time that a packet may be held, µs.
    pub horizon_us: u32,
}

impl FqOptions {
    /// These options, wide enough for packets that were stamped under others, too.
    #[must_use]
    pub fn widest(self, new: Self) -> Self {
        Self {
            horizon_us: self.horizon_us.max(new.horizon_us),
            ..new
        }
    }
}

/// Handle of the root qdisc of perturb's own devices.
const ROOT_HANDLE: TcHandle = TcHandle { major: 1, minor: 0 };
/// Fewer buckets than this make long chains.
const LEAST_BUCKETS_LOG: u32 = 10;

/// A place of filters at a clsact qdisc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// What the interface receives.
    Ingress,
    /// What it sends.
    Egress,
}

impl Hook {
    fn parent(self) -> TcHandle {
        // TC_H_MIN_INGRESS and TC_H_MIN_EGRESS.
        let minor = match self {
            Self::Ingress => 0xfff2,
            Self::Egress => 0xfff3,
        };
        TcHandle { major: 0xffff, minor }
    }
}

/// A filter that is a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfFilter {
    /// The kernel's number of the program.
    pub program: u32,
    handle: TcHandle,
    info: u32,
}

/// Counters of a qdisc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QdiscStats {
    /// Packets it holds now.
    pub backlog: u32,
    /// Packets it dropped.
    pub drops: u32,
}

impl Netlink {
    /// Gives each transmit queue of one of perturb's own devices a sch_fq, or changes its options; with several queues
    /// they are below mq (`mq_init`), which is asked for its sum. ENOENT: this kernel has no sch_fq.
    pub fn set_fq(&mut self, index: u32, queues: u32, options: FqOptions) -> Result<()> {
        if queues <= 1 {
            return self.set_fq_at(index, TcHandle::ROOT, ROOT_HANDLE, options);
        }
        let mut root = TcMessage::with_index(index.cast_signed());
        root.header.parent = TcHandle::ROOT;
        root.header.handle = ROOT_HANDLE;
        root.attributes.push(TcAttribute::Kind("mq".into()));
        let made = self.request(
            RouteNetlinkMessage::NewQueueDiscipline(root),
            NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK,
            || "set up mq".into(),
        );
        match made {
            Err(error) if !error.is(libc::EEXIST) => return Err(error),
            _ => {}
        }
        let options = FqOptions {
            buckets_log: options
                .buckets_log
                .saturating_sub(queues.ilog2())
                .max(LEAST_BUCKETS_LOG),
            ..options
        };
        for queue in 0..u16::try_from(queues).unwrap_or(u16::MAX) {
            // Classes of mq are numbered from 1 (`mq_dump_class`).
            let parent = TcHandle {
                major: ROOT_HANDLE.major,
                minor: queue + 1,
            };
            let own = TcHandle {
                major: ROOT_HANDLE.major + 1 + queue,
                minor: 0,
            };
            self.set_fq_at(index, parent, own, options)?;
        }
        Ok(())
    }

    fn set_fq_at(
        &mut self,
        index: u32,
        parent: TcHandle,
        handle: TcHandle,
        options: FqOptions,
    ) -> Result<()> {
        let word =
            |kind: u16, value: u32| TcOption::Other(DefaultNla::new(kind, value.to_ne_bytes().to_vec()));
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = parent;
        message.header.handle = handle;
        message.attributes.push(TcAttribute::Kind("fq".into()));
        // TCA_FQ_* of linux/pkt_sched.h.
        message.attributes.push(TcAttribute::Options(vec![
            // No limits of its own: the programs limit the memory of all queues together, and count what they drop.
            word(1, u32::MAX),
            word(2, u32::MAX),
            word(5, 0), // no pacing of its own
            word(8, options.buckets_log),
            word(10, u32::MAX), // a flow for every hash of a packet without socket
            word(13, 0),        // no timer slack
            word(14, options.horizon_us),
            TcOption::Other(DefaultNla::new(15, vec![1])),
        ]));
        let flags = NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK;
        self.request(RouteNetlinkMessage::NewQueueDiscipline(message), flags, || {
            "set up sch_fq".into()
        })?;
        Ok(())
    }

    /// Has one of perturb's own devices send without a qdisc (`noqueue_init`): its driver has a queue, and a qdisc's lock would
    /// keep processors from sending at the same time.
    pub fn set_noqueue(&mut self, index: u32) -> Result<()> {
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = TcHandle::ROOT;
        message.header.handle = ROOT_HANDLE;
        message.attributes.push(TcAttribute::Kind("noqueue".into()));
        let flags = NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK;
        self.request(RouteNetlinkMessage::NewQueueDiscipline(message), flags, || {
            "set up noqueue".into()
        })?;
        Ok(())
    }

    /// Adds the clsact qdisc; `false` if there was one.
    pub fn add_clsact(&mut self, index: u32) -> Result<bool> {
        let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        match self.request(
            RouteNetlinkMessage::NewQueueDiscipline(clsact(index)),
            flags,
            || "add the clsact qdisc".into(),
        ) {
            Ok(_) => Ok(true),
            Err(error) if error.is(libc::EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the clsact qdisc.
    pub fn delete_clsact(&mut self, index: u32) -> Result<()> {
        self.request(
            RouteNetlinkMessage::DelQueueDiscipline(clsact(index)),
            NLM_F_ACK,
            || "remove the clsact qdisc".into(),
        )?;
        Ok(())
    }

    /// Whether an interface has a clsact qdisc.
    pub fn has_clsact(&mut self, index: u32) -> Result<bool> {
        let message = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index.cast_signed()));
        let replies = self.request(message, NLM_F_DUMP, || "list qdiscs".into())?;
        let wanted = clsact(index);
        Ok(replies.iter().any(|reply| {
            // The dump may be of all interfaces.
            matches!(reply, RouteNetlinkMessage::NewQueueDiscipline(qdisc)
                if qdisc.header.index == wanted.header.index
                    && qdisc.header.parent == wanted.header.parent
                    && wanted.attributes.iter().all(|kind| qdisc.attributes.contains(kind)))
        }))
    }

    /// The kinds of all qdiscs of an interface.
    pub fn qdisc_kinds(&mut self, index: u32) -> Result<Vec<String>> {
        let message = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index.cast_signed()));
        let replies = self.request(message, NLM_F_DUMP, || "list qdiscs".into())?;
        let mut kinds = Vec::new();
        for reply in replies {
            let RouteNetlinkMessage::NewQueueDiscipline(qdisc) = reply else {
                continue;
            };
            if qdisc.header.index == index.cast_signed() {
                kinds.extend(
                    qdisc
                        .attributes
                        .into_iter()
                        .filter_map(|attribute| match attribute {
                            TcAttribute::Kind(kind) => Some(kind),
                            _ => None,
                        }),
                );
            }
        }
        Ok(kinds)
    }

    /// Kind and priority of the filters of a hook of an interface's clsact qdisc.
    pub fn filters(&mut self, index: u32, hook: Hook) -> Result<BTreeSet<(String, u16)>> {
        let replies = self.filter_messages(index, hook)?;
        Ok(replies.into_iter().filter_map(kind_and_priority).collect())
    }

    fn filter_messages(&mut self, index: u32, hook: Hook) -> Result<Vec<RouteNetlinkMessage>> {
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = hook.parent();
        self.request(RouteNetlinkMessage::GetTrafficFilter(message), NLM_F_DUMP, || {
            "list filters".into()
        })
    }

    /// The bpf filters of a hook of an interface's clsact qdisc.
    pub fn bpf_filters(&mut self, index: u32, hook: Hook) -> Result<Vec<BpfFilter>> {
        let replies = self.filter_messages(index, hook)?;
        Ok(replies.into_iter().filter_map(bpf_filter).collect())
    }

    /// Removes a bpf filter.
    pub fn delete_filter(&mut self, index: u32, hook: Hook, filter: &BpfFilter) -> Result<()> {
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = hook.parent();
        message.header.handle = filter.handle;
        message.header.info = filter.info;
        message.attributes.push(TcAttribute::Kind("bpf".into()));
        self.request(RouteNetlinkMessage::DelTrafficFilter(message), NLM_F_ACK, || {
            "remove a filter".into()
        })?;
        Ok(())
    }

    /// How many filters hang on an interface's clsact qdisc, both ways.
    pub fn clsact_filters(&mut self, index: u32) -> Result<usize> {
        let mut count = 0;
        for hook in [Hook::Ingress, Hook::Egress] {
            count += self.filter_messages(index, hook)?.len();
        }
        Ok(count)
    }

    /// Counters of an interface's root qdisc.
    pub fn root_qdisc(&mut self, index: u32) -> Result<QdiscStats> {
        let message = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index.cast_signed()));
        let replies = self.request(message, NLM_F_DUMP, || "read qdisc counters".into())?;
        for reply in replies {
            let RouteNetlinkMessage::NewQueueDiscipline(qdisc) = reply else {
                continue;
            };
            if qdisc.header.index != index.cast_signed() || qdisc.header.parent != TcHandle::ROOT {
                continue;
            }
            for attribute in &qdisc.attributes {
                if let TcAttribute::Stats(stats) = attribute {
                    return Ok(QdiscStats {
                        backlog: stats.qlen,
                        drops: stats.drops,
                    });
                }
            }
        }
        Ok(QdiscStats::default())
    }
}

fn clsact(index: u32) -> TcMessage {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.parent = TcHandle {
        major: 0xffff,
        minor: 0xfff1,
    };
    message.header.handle = TcHandle {
        major: 0xffff,
        minor: 0,
    };
    message.attributes.push(TcAttribute::Kind("clsact".into()));
    message
}

/// The priority is the high half of `tcm_info` (`TC_H_MAKE(prio, protocol)`).
fn kind_and_priority(reply: RouteNetlinkMessage) -> Option<(String, u16)> {
    let RouteNetlinkMessage::NewTrafficFilter(filter) = reply else {
        return None;
    };
    let priority = (filter.header.info >> 16) as u16;
    filter
        .attributes
        .into_iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some((kind, priority)),
            _ => None,
        })
}

fn bpf_filter(reply: RouteNetlinkMessage) -> Option<BpfFilter> {
    let RouteNetlinkMessage::NewTrafficFilter(filter) = reply else {
        return None;
    };
    let options = filter.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    })?;
    let program = options.iter().find_map(|option| match option {
        TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => Some(*id),
        _ => None,
    })?;
    Some(BpfFilter {
        program,
        handle: filter.header.handle,
        info: filter.header.info,
    })
}
