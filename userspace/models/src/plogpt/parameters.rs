//! The parameters, checked: bandwidths, buffers, gaps, and which heights belong to one switch.

use super::input::{Competitors, Link, Parameters, Sharing};

/// Most nodes that a tree may have.
const MAX_NODES: u32 = 1 << 16;

/// What is wrong with the parameters.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// Nobody there, or too many.
    #[error("parameters.nodes is {nodes}; give 1 to {MAX_NODES}")]
    Nodes {
        /// The number.
        nodes: u32,
    },
    /// Too few heights.
    #[error(
        "parameters.{key} has {heights} heights, but a binary tree of {nodes} nodes has {needed}; \
         give one entry per height, the nodes' own links first"
    )]
    Heights {
        /// Which list.
        key: &'static str,
        /// Its length.
        heights: usize,
        /// Number of nodes.
        nodes: u32,
        /// Heights of their tree.
        needed: usize,
    },
    /// An edge that carries nothing.
    #[error("parameters.{key}[{index}].bandwidth is 0; give a rate above 0")]
    NoBandwidth {
        /// Which list.
        key: &'static str,
        /// Which entry, from 0.
        index: usize,
    },
    /// A tolerance that is none.
    #[error("parameters.switch_tolerance is {value}; give a finite number, 0 or more, e.g. 0.001")]
    SwitchTolerance {
        /// The value.
        value: f64,
    },
    /// No gaps.
    #[error("parameters.gap is empty; give at least one entry, e.g. `{{size: 1kB, gap: 25us}}`")]
    NoGap,
    /// Two gaps for one size.
    #[error("parameters.gap has two entries for {bytes} B; keep one")]
    SameSize {
        /// The size.
        bytes: f64,
    },
    /// Beyond what a double holds.
    #[error("the gap of a message of {bytes} B is not finite; sizes and gaps are too large")]
    GapNotFinite {
        /// The size.
        bytes: f64,
    },
}

/// A checked network.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Number of nodes.
    pub nodes: u32,
    /// One-way latency, µs.
    pub latency: f64,
    /// Retransmission time-out, µs.
    pub rto: f64,
    /// Jitter, µs.
    pub jitter: f64,
    /// Whether the directions of an edge share its bandwidth.
    pub sharing: Sharing,
    /// Which transfers can cost another one a time-out.
    pub competitors: Competitors,
    /// `b(h)` in bytes per µs, limited to `2 b(h-1)`; height 1 first.
    bandwidth: Vec<f64>,
    /// `d(h)` in µs.
    buffer_delay: Vec<f64>,
    /// Difference up to which two heights are of one switch, `eps_S`.
    tolerance: f64,
    /// `g(m)`: sizes in bytes, rising, and gaps in µs.
    gap: Vec<(f64, f64)>,
}

impl Network {
    /// Checks the parameters; `one_way` chooses the links of one-way traffic where they are given.
    ///
    /// # Errors
    /// When a list is too short or a value is out of its range.
    pub fn new(parameters: &Parameters, one_way: bool) -> Result<Self, ParameterError> {
        let nodes = parameters.nodes;
        if !(1..=MAX_NODES).contains(&nodes) {
            return Err(ParameterError::Nodes { nodes });
        }
        let tolerance = parameters.switch_tolerance;
        if !tolerance.is_finite() || tolerance < 0.0 {
            return Err(ParameterError::SwitchTolerance { value: tolerance });
        }
        check_links("links", &parameters.links, nodes)?;
        if let Some(links) = &parameters.one_way_links {
            check_links("one_way_links", links, nodes)?;
        }
        let links = match &parameters.one_way_links {
            Some(links) if one_way => links,
            _ => &parameters.links,
        };
        let mut bandwidth: Vec<f64> = Vec::with_capacity(links.len());
        for link in links {
            let rate = link.bandwidth.0 / 1e6;
            bandwidth.push(bandwidth.last().map_or(rate, |below| rate.min(2.0 * below)));
        }
        let buffer_delay: Vec<f64> = links.iter().map(|link| link.buffer_delay.0).collect();
        Ok(Self {
            nodes,
            latency: parameters.latency.0,
            rto: parameters.rto.0,
            jitter: parameters.jitter.0,
            sharing: parameters.sharing,
            bandwidth,
            buffer_delay,
            tolerance,
            competitors: parameters.competitors,
            gap: gap_table(parameters)?,
        })
    }

    /// Number of heights of the tree of all nodes.
    #[must_use]
    pub fn heights(&self) -> usize {
        heights(self.nodes)
    }

    /// Number of heights that have parameters; at least [`Network::heights`].
    #[must_use]
    pub fn links(&self) -> usize {
        self.bandwidth.len()
    }

    /// `b(h)` in bytes per µs.
    #[must_use]
    pub fn bandwidth(&self, height: usize) -> f64 {
        self.bandwidth[height - 1]
    }

    /// `P_S` of two heights (eq. 5): whether there are switches between them.
    #[must_use]
    pub fn different_switches(&self, one: usize, other: usize) -> bool {
        let (lower, upper) = (one.min(other), one.max(other));
        let doubled = self.bandwidth(lower) * 2_f64.powi((upper - lower) as i32);
        let wide = log_ratio(doubled, self.bandwidth(upper));
        let deep = log_ratio(self.buffer_delay(lower), self.buffer_delay(upper));
        wide * wide + deep * deep > self.tolerance
    }

    /// `d(h)` in µs.
    #[must_use]
    pub fn buffer_delay(&self, height: usize) -> f64 {
        self.buffer_delay[height - 1]
    }

    /// `g(m)` in µs; never negative.
    ///
    /// # Errors
    /// When the table, continued to that size, leaves the range of a double.
    pub fn gap(&self, bytes: f64) -> Result<f64, ParameterError> {
        let gap = match self.gap.as_slice() {
            [(_, gap)] => *gap,
            table => {
                let above = table
                    .partition_point(|(size, _)| *size < bytes)
                    .clamp(1, table.len() - 1);
                let ((x0, y0), (x1, y1)) = (table[above - 1], table[above]);
                y0 + (bytes - x0) * ((y1 - y0) / (x1 - x0))
            }
        };
        if gap.is_finite() {
            Ok(gap.max(0.0))
        } else {
            Err(ParameterError::GapNotFinite { bytes })
        }
    }

    /// What a message puts on the way: `b(1) g(m)`, in bytes.
    ///
    /// # Errors
    /// As [`Network::gap`].
    pub fn volume(&self, bytes: f64) -> Result<f64, ParameterError> {
        // A single node has no link, and no messages either.
        let first = self.bandwidth.first().copied().unwrap_or(0.0);
        Ok(first * self.gap(bytes)?)
    }

    /// `b(h) / 2^(h-1)`: what a node has of an edge if all nodes below use it.
    #[must_use]
    pub fn share_below(&self, height: usize) -> f64 {
        self.bandwidth(height) / 2_f64.powi(height as i32 - 1)
    }

    /// Height of the common ancestor of two different nodes.
    #[must_use]
    pub fn ancestor(one: u32, other: u32) -> usize {
        (u32::BITS - (one ^ other).leading_zeros()) as usize
    }
}

/// Heights of a binary tree with that many leaves.
pub(super) fn heights(nodes: u32) -> usize {
    (u32::BITS - (nodes - 1).leading_zeros()) as usize
}

fn check_links(key: &'static str, links: &[Link], nodes: u32) -> Result<(), ParameterError> {
    let needed = heights(nodes);
    if links.len() < needed {
        return Err(ParameterError::Heights {
            key,
            heights: links.len(),
            nodes,
            needed,
        });
    }
    match links.iter().position(|link| link.bandwidth.0 == 0.0) {
        Some(index) => Err(ParameterError::NoBandwidth { key, index }),
        None => Ok(()),
    }
}

/// `P_B`: whether a message exceeds `B(C)` (eq. 9); rounding must not make one of the two larger.
pub(super) fn overflows(buffer: f64, bytes: f64) -> bool {
    bytes - buffer > 1e-12 * bytes
}

/// Whether two times are less than the jitter apart; rounding must not bring nearer what is just that far.
pub(super) fn near(one: f64, other: f64, jitter: f64) -> bool {
    let distance = (one - other).abs();
    distance < jitter && jitter - distance > 1e-12 * one.abs().max(other.abs())
}

/// Two buffers of the same delay are alike, also without any.
fn log_ratio(one: f64, other: f64) -> f64 {
    if one == other { 0.0 } else { (one / other).ln() }
}

fn gap_table(parameters: &Parameters) -> Result<Vec<(f64, f64)>, ParameterError> {
    let mut table: Vec<(f64, f64)> = parameters
        .gap
        .iter()
        .map(|point| (point.size.0, point.gap.0))
        .collect();
    if table.is_empty() {
        return Err(ParameterError::NoGap);
    }
    table.sort_by(|one, other| one.0.total_cmp(&other.0));
    match table.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(ParameterError::SameSize { bytes: pair[0].0 }),
        None => Ok(table),
    }
}
