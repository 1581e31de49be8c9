//! Messages without contention: (1), (2).

/// LogGP's parameters of one kind of message, in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogGp {
    /// L.
    pub latency: f64,
    /// o_s.
    pub send: f64,
    /// o_r.
    pub receive: f64,
    /// b = B G, the time that the message occupies a channel or DMA engine.
    pub channel: f64,
}

impl LogGp {
    /// (1) A short message, end to end: o_s + L + o_r. Its bytes are part of the overheads.
    #[must_use]
    pub fn short(&self) -> f64 {
        self.send + self.latency + self.receive
    }

    /// A request and its reply, both short.
    #[must_use]
    pub fn round_trip(&self) -> f64 {
        2.0 * self.short()
    }

    /// A long message, end to end: o_s + b + L + o_r.
    #[must_use]
    pub fn long(&self) -> f64 {
        self.short() + self.channel
    }

    /// T, the interval of long messages in a row: the slowest stage of the pipeline of sending
    /// processor, DMA engine and receiving processor.
    #[must_use]
    pub fn interval(&self) -> f64 {
        self.send.max(self.channel).max(self.receive)
    }

    /// (2) `count` long messages in a row: the first one end to end, then one per interval. With
    /// contention the interval is T_c.
    #[must_use]
    pub fn train(&self, count: f64, interval: f64) -> f64 {
        self.long() + (count - 1.0).max(0.0) * interval
    }
}
