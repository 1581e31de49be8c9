//! From observations to LogGP's parameters: pure functions, no clock, no I/O.
//!
//! | module | from | gives | source |
//! |---|---|---|---|
//! | [`passage`] | a datagram's four instants | o_s, transit, o_r | the definitions of o and L |
//! | [`train`] | arrivals of bursts of several sizes | g, G | LogGP: a burst of n messages of s bytes takes (n-1)(g + Gs) |
//! | [`prtt`] | parametrized round trips | o_s, g, G, L | Hoefler et al., "Low-Overhead LogGP Parameter Assessment for Modern Interconnection Networks", IPDPS 2007 |
//! | [`signature`] | initiation intervals | o_s, o_r, g, L | Culler et al., "Assessing Fast Network Interfaces", IEEE Micro 16(1), 1996; Martin, fig. 2.3 |
//! | [`changes`] | times over sizes | where another line begins | Hoefler et al., as above |

pub(crate) mod changes;
pub(crate) mod passage;
pub(crate) mod prtt;
pub(crate) mod signature;
pub(crate) mod train;

/// LogGP's four parameters as a measurement found them.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Observed {
    /// o, the mean of sender's and receiver's, per wire packet, microseconds.
    pub overhead_us: f64,
    /// g, microseconds.
    pub gap_us: f64,
    /// L, one way, microseconds.
    pub latency_us: f64,
    /// G, nanoseconds per byte on the wire.
    pub gap_per_byte_ns: f64,
}
