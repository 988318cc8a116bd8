//! The GPU code generator of Tilewright: from bound tile IR to PTX.

pub mod check;
