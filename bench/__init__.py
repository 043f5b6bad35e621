"""Side by side with peers and floors. Ratios within one run count; absolute times belong to the machine."""
