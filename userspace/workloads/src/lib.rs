//! Traffic generators and servers. None of them knows whether emulation is on.
