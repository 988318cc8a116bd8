//! What a kernel is given, and what it knows of it when it is compiled, on every device.

mod defaults;
mod dtypes;
mod in_place;
mod machine;
mod named;
mod optional;
