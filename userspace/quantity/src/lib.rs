//! Quantities as people write them: a number and a unit, one grammar for profiles, models and the command line.
//!
//! ```text
//! quantity = number [spaces] unit
//! number   = ["+"] digits ["." digits] [("e" | "E") ["+" | "-"] digits]     also `5.` and `.5`
//! unit     = one of those of its dimension, in exactly this case
//! ```
//!
//! A number without a unit is refused, zero included: `gap: 0` does not say whether microseconds or milliseconds were
//! meant when it was 5. A minus sign is refused, too: nothing here is negative.
//!
//! A dimension is read in two ways. What the emulator obeys ([`Duration`], [`Rate`], [`Size`], [`Probability`]) is a
//! whole number of the smallest step that perturb tells apart, so reading and printing are exact. What models compute
//! with ([`Micros`], [`ByteSize`], …) is an `f64` in one unit for each dimension. Times are µs, and LogGP's G is µs per
//! byte; where a paper, a file or a device has another unit, it is converted there.
//!
//! Each type has [`FromStr`](std::str::FromStr), hence a parser for clap, and `Deserialize`. Both teach with the same
//! [`QuantityError`].

#![warn(missing_docs)]

mod exact;
mod grammar;
mod real;
mod suggest;

pub use exact::{Duration, Probability, Rate, Size};
pub use grammar::{Dimension, Fault, Quantity, QuantityError};
pub use real::{
    ByteSize, BytesPerSecond, Cycles, CyclesPerByte, Micros, MicrosPerByte, OperationsPerSecond, Share,
};
pub use suggest::closest;

#[cfg(test)]
mod tests;
