mod backward;
mod forward;
mod reference;
mod serving;
