mod backward;
mod forward;
mod reference;
