//! A measured path as a profile, as a table for `predict whatif`, and for people.

use std::fmt::{self, Write as _};

use perturb_present::{Table, measured};
use serde::Serialize;

use super::path::Direction;

/// Sizes of the messages in the network's table, bytes.
const MESSAGES: [u32; 6] = [0, 1_024, 4_096, 16_384, 65_536, 1_048_576];
/// Payload and wire bytes of a full frame's datagram.
const FRAME: (f64, f64) = (1472.0, 1514.0);

/// A path between this host and a peer.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The peer, as it was named.
    pub peer: String,
    /// L, one way, microseconds: half of what a round trip takes outside of the hosts, without the service.
    pub latency_us: f64,
    /// PRTT(1, 0, s_min), microseconds, the hosts' share included.
    pub round_trip_us: f64,
    /// From this host to the peer.
    pub out: Direction,
    /// From the peer to this host.
    #[serde(rename = "in")]
    pub inward: Direction,
    /// Spacing of full frames with both directions at work at once, over that of one alone: out, in.
    pub both_ways: [f64; 2],
    /// The version of perturb.
    pub version: &'static str,
    /// The kernel of this host.
    pub kernel: String,
}

impl Measured {
    /// The profile that emulates this path on an interface of this host.
    #[must_use]
    pub fn profile(&self) -> String {
        let mut text = format!(
            "# Measured by perturb {} to {} on {}.\n\
             # Overheads of this host are not part of it: o_s {:.1} us, o_r {:.1} us.\n\
             version: 1\nname: measured\nservers:\n",
            self.version,
            self.peer,
            self.kernel,
            self.out.sizes[0].overhead_send_us,
            self.inward.sizes[0].overhead_receive_us,
        );
        for (name, direction) in [("out", &self.out), ("in", &self.inward)] {
            let _ = writeln!(text, "  {name}: {{ {} }}", self.server(direction));
        }
        text.push_str("classes:\n  - { name: all, match: {}, egress: [out], ingress: [in] }\n");
        text
    }

    fn server(&self, direction: &Direction) -> String {
        let ns = |us: f64| (us * 1e3).round().max(0.0) as u64;
        let mut keys = vec![format!("latency: {}ns", ns(self.latency_us))];
        if let Some(gap) = direction.gap_us {
            keys.push(format!("gap: {}ns", ns(gap)));
        }
        if let Some(per_byte) = direction.gap_per_byte_ns {
            keys.push(format!("bandwidth: {}bit/s", (8e9 / per_byte).round() as u64));
            // A buffer counted in time needs the rate.
            if let Some(depth) = direction.buffer_us {
                keys.push(format!("buffer: {}ns", ns(depth.max(FRAME.1 * per_byte / 1e3))));
            }
        }
        if direction.loss > 0.0 {
            keys.push(format!("loss: {:.4}%", 100.0 * direction.loss));
        }
        keys.join(", ")
    }

    /// One-way times over sizes of messages, as `predict whatif` takes them: out of one program, into another.
    #[must_use]
    pub fn network(&self) -> String {
        let direction = &self.out;
        let small = &direction.sizes[0];
        let hosts = small.overhead_send_us + self.inward.sizes[0].overhead_receive_us;
        let per_byte = direction.gap_per_byte_ns.unwrap_or(0.0);
        let points: Vec<String> = MESSAGES
            .iter()
            .map(|&size| {
                let packets = (f64::from(size) / FRAME.0).ceil().max(1.0);
                let wire = f64::from(size) + packets * (FRAME.1 - FRAME.0);
                let service = direction.gap_us.unwrap_or(0.0) * packets + per_byte * wire / 1e3;
                format!(
                    "{{size: {size}B, time: {:.3}us}}",
                    hosts + self.latency_us + service
                )
            })
            .collect();
        format!(
            "# Measured by perturb {} to {} on {}.\nnetwork:\n  remote: [{}]\n",
            self.version,
            self.peer,
            self.kernel,
            points.join(",\n           ")
        )
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: L {:.1} us one way, round trip {:.1} us",
            self.peer, self.latency_us, self.round_trip_us
        )?;
        let mut table = Table::new(1, &["direction", "payload B", "o_s us", "o_r us", "g(m) us"]);
        for (name, direction) in [("out", &self.out), ("in", &self.inward)] {
            for size in &direction.sizes {
                let hidden = if size.sender_limited { " (sender)" } else { "" };
                table.row(vec![
                    name.to_owned(),
                    size.payload_bytes.to_string(),
                    measured(size.overhead_send_us),
                    measured(size.overhead_receive_us),
                    format!("{}{hidden}", measured(size.gap_us)),
                ]);
            }
        }
        write!(f, "{table}")?;
        let mut table = Table::new(
            1,
            &["direction", "g us", "b Mbit/s", "d us", "loss %", "both ways"],
        );
        for ((name, direction), both) in [("out", &self.out), ("in", &self.inward)]
            .into_iter()
            .zip(self.both_ways)
        {
            let deeper = || format!("> {}", measured(direction.longest_wait_us));
            table.row(vec![
                name.to_owned(),
                measured(direction.gap_us),
                measured(direction.bandwidth_bytes_s.map(|rate| rate * 8e-6)),
                direction.buffer_us.map_or_else(deeper, measured),
                measured(100.0 * direction.loss),
                format!("{both:.2}"),
            ]);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::path::Size;

    fn direction(gap_us: Option<f64>, gap_per_byte_ns: Option<f64>, buffer_us: Option<f64>) -> Direction {
        Direction {
            sizes: vec![Size {
                payload_bytes: 64,
                wire_bytes: 106,
                overhead_send_us: 5.0,
                overhead_receive_us: 7.0,
                gap_us: 10.0,
                sender_limited: false,
            }],
            gap_us,
            gap_per_byte_ns,
            bandwidth_bytes_s: gap_per_byte_ns.map(|ns| 1e9 / ns),
            loss: 0.01,
            loss_of: 1000,
            buffer_us,
            longest_wait_us: 0.0,
            protocol_changes: vec![],
        }
    }

    fn measured() -> Measured {
        Measured {
            peer: "h2".into(),
            latency_us: 20_000.5,
            round_trip_us: 40_100.0,
            out: direction(Some(50.0), Some(80.0), Some(52_000.0)),
            inward: direction(None, None, Some(1.0)),
            both_ways: [1.0, 1.0],
            version: "0",
            kernel: "Linux".into(),
        }
    }

    #[test]
    fn the_profile_is_one_and_means_what_was_measured() {
        let text = measured().profile();
        let profile = perturb_profile::parse(&text).unwrap_or_else(|errors| panic!("{text}{errors}"));
        let meaning = perturb_profile::explain(&profile, &perturb_profile::Files::default());
        let out = meaning.classes[0].egress.clone().unwrap();
        assert_eq!(out.latency.nanos(), 20_000_500);
        assert_eq!(out.gap.unwrap().nanos(), 50_000);
        assert_eq!(out.bandwidth.unwrap().time_of(1_000).nanos(), 80_000);
        let inward = meaning.classes[0].ingress.clone().unwrap();
        assert_eq!((inward.bandwidth, inward.gap), (None, None));
    }

    #[test]
    fn the_table_is_one_that_whatif_takes() {
        let text = measured().network();
        let input = format!("groups: [[1], [2]]\n{text}");
        let input: perturb_models::whatif::input::Input = serde_saphyr::from_str(&input).unwrap();
        input.scenario().unwrap();
        // 12 us of overheads, 20000.5 of L, 50 of g, 42 B of headers at 80 ns.
        assert!(text.contains("{size: 0B, time: 20065.860us}"), "{text}");
    }
}
