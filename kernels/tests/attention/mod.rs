mod backward;
mod forward;
mod fp8;
mod fused;
mod reference;
mod rotated;
mod serving;
