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

use perturb_profile::Knob;

/// LogGP's four parameters: as a measurement found them, or as a profile adds them to a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Parameters {
    /// o, the mean of sender's and receiver's, per wire packet, microseconds.
    pub overhead_us: f64,
    /// g, microseconds.
    pub gap_us: f64,
    /// L, one way, microseconds.
    pub latency_us: f64,
    /// G, nanoseconds per byte on the wire.
    pub gap_per_byte_ns: f64,
}

impl Parameters {
    /// The value of a knob; 0 of one that is no parameter of LogGP.
    pub(crate) fn of(mut self, knob: Knob) -> f64 {
        self.of_mut(knob).map_or(0.0, |value| *value)
    }

    pub(crate) fn of_mut(&mut self, knob: Knob) -> Option<&mut f64> {
        Some(match knob {
            Knob::Overhead => &mut self.overhead_us,
            Knob::Gap => &mut self.gap_us,
            Knob::Latency => &mut self.latency_us,
            Knob::Bandwidth => &mut self.gap_per_byte_ns,
            _ => return None,
        })
    }
}
