//! Units, wire types and the departure recursion, shared by the kernel side and the controller.
#![no_std]
