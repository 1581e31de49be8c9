//! What a link sends besides packets' bytes: headers of its own for each, and cells that are sent whole (ATM: 48 of 53 bytes),
//! as netem's `rate` counts them (`packet_time_ns`).

use crate::departure::Load;

/// More bytes than a packet has: from here on any bandwidth takes [`crate::units::Ticks::MAX`] for them.
const MOST_BYTES: u64 = 1 << 34;
/// More segments than a packet has.
const MOST_SEGMENTS: u64 = 1 << 24;

/// How a link frames packets. Overheads and cells are below 2^16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Framing {
    /// Bytes of each packet besides; below zero for a header that does not cross the link.
    pub packet_overhead: i32,
    /// Bytes of packets that a cell carries; 0 for no cells.
    pub cell_size: u32,
    /// Bytes of a cell on the wire.
    pub cell_bytes: u32,
}

impl Framing {
    /// None.
    pub const NONE: Self = Self {
        packet_overhead: 0,
        cell_size: 0,
        cell_bytes: 0,
    };

    /// Bytes on the wire of a packet, whose segments count as packets of one size.
    #[inline(always)]
    #[must_use]
    pub const fn on_wire(&self, load: Load) -> u64 {
        let mut bytes = if load.bytes > MOST_BYTES {
            MOST_BYTES
        } else {
            load.bytes
        };
        let segments = if load.segments == 0 {
            1
        } else if load.segments > MOST_SEGMENTS {
            MOST_SEGMENTS
        } else {
            load.segments
        };
        let overhead = self.packet_overhead.unsigned_abs() as u64 * segments;
        bytes = if self.packet_overhead < 0 {
            bytes.saturating_sub(overhead)
        } else {
            bytes + overhead
        };
        if self.cell_size == 0 {
            return bytes;
        }
        // Below 2^34 + 2^41: with the cells' overhead it fits.
        let cells = bytes.div_ceil(segments).div_ceil(self.cell_size as u64) * segments;
        cells.wrapping_mul(self.cell_bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// sch_netem's `packet_time_ns`, in bytes.
    fn netem(len: i64, packet_overhead: i64, cell_size: i64, cell_overhead: i64) -> i64 {
        let len = (len + packet_overhead).max(0);
        if cell_size == 0 {
            return len;
        }
        let mut cells = len / cell_size;
        if len > cells * cell_size {
            cells += 1;
        }
        cells * (cell_size + cell_overhead)
    }

    proptest! {
        #[test]
        fn packets_take_what_netem_says(
            len in 0..70_000u32, packet in -1_000..65_536i32, cell in 0..60_000u32, more in 0..5_536u32, segments in 1..64u64,
        ) {
            let framing = Framing { packet_overhead: packet, cell_size: cell, cell_bytes: if cell == 0 { 0 } else { cell + more } };
            let one = netem(len.into(), packet.into(), cell.into(), more.into()) as u64;
            let found = framing.on_wire(Load { bytes: len.into(), segments: 1 });
            prop_assert_eq!(found, one);
            // A super-packet is its segments.
            let all = Load { bytes: u64::from(len) * segments, segments };
            if i64::from(len) + i64::from(packet) >= 0 {
                prop_assert_eq!(framing.on_wire(all), one * segments);
            }
        }

        #[test]
        fn anything_is_counted(bytes: u64, segments: u64, packet: i32, cell: u32, wire: u32) {
            let _ = Framing { packet_overhead: packet, cell_size: cell, cell_bytes: wire }.on_wire(Load { bytes, segments });
        }
    }

    #[test]
    fn adsl_sends_cells() {
        // PPPoE over LLC: 32 bytes besides the IP packet, AAL5's trailer among them, in cells of 48 of 53 bytes.
        let framing = Framing {
            packet_overhead: 32 - 14,
            cell_size: 48,
            cell_bytes: 53,
        };
        for (packet, cells) in [
            (40, 2),
            (1454, 31),
            (1455, 31),
            (1456, 31),
            (1457, 32),
            (1500, 32),
        ] {
            let load = Load {
                bytes: packet + 14,
                segments: 1,
            };
            assert_eq!(framing.on_wire(load), cells * 53, "{packet} bytes");
        }
    }
}
