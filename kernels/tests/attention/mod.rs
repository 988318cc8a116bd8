mod backward;
mod forward;
mod fp8;
mod fused;
mod latent;
mod reference;
mod rotated;
mod serving;
