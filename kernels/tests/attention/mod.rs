mod backward;
mod forward;
mod fused;
mod reference;
mod serving;
