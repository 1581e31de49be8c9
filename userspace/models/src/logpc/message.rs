//! Messages without contention: (1), (2), (8), and the remap's iteration (5.1.3).

/// LogGP's parameters of one kind of message, in cycles, with what a DMA engine adds to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogGp {
    /// L, to the first byte.
    pub latency: f64,
    /// o_s.
    pub send: f64,
    /// o_r.
    pub receive: f64,
    /// B, in bytes.
    pub bytes: f64,
    /// G, cycles per byte.
    pub gap_per_byte: f64,
    /// a, bytes that arrive before the receiver is interrupted.
    pub header: f64,
    /// G_m, cycles per byte from the input queue to memory; without it memory keeps up.
    pub gap_memory: Option<f64>,
}

impl LogGp {
    /// A short message, end to end: o_s + L + o_r, which is (8) without C_n. Its bytes are part of the
    /// overheads.
    #[must_use]
    pub fn short(&self) -> f64 {
        self.send + self.latency + self.receive
    }

    /// A request and its reply, both short (5.1.1).
    #[must_use]
    pub fn round_trip(&self) -> f64 {
        2.0 * self.short()
    }

    /// A long message, from the start of its sending to its last byte's arrival: o_s + L + (B - 1) G (1), and
    /// with G_m o_s + L + max(o_r + a G + B G_m, (B - 1) G) (2).
    #[must_use]
    pub fn long(&self) -> f64 {
        let network = (self.bytes - 1.0) * self.gap_per_byte;
        let drained = self.gap_memory.map_or(network, |gap_memory| {
            self.receive + self.header * self.gap_per_byte + self.bytes * gap_memory
        });
        self.send + self.latency + drained.max(network)
    }

    /// The size in bytes from which on (2) is (1): the input queue is empty again when the last byte
    /// arrives. `None` without G_m, or where memory is no faster than the network.
    #[must_use]
    pub fn crossover(&self) -> Option<f64> {
        let spare = self.gap_per_byte - self.gap_memory?;
        (spare > 0.0).then(|| (self.receive + (self.header + 1.0) * self.gap_per_byte) / spare)
    }

    /// O_s = o_s + (B - 1) G, the time of a blocking send (5.1.3, 5.2.1).
    #[must_use]
    pub fn sending(&self) -> f64 {
        self.send + (self.bytes - 1.0) * self.gap_per_byte
    }

    /// O_r = (B - 1 - a) G, the time of a blocking receive, at least 0 (5.1.3, 5.2.1).
    #[must_use]
    pub fn receiving(&self) -> f64 {
        ((self.bytes - 1.0 - self.header) * self.gap_per_byte).max(0.0)
    }

    /// T = 2 G B, the least interval of a node's long messages, each of which is sent and received (3.4).
    #[must_use]
    pub fn interval(&self) -> f64 {
        2.0 * self.gap_per_byte * self.bytes
    }
}
