"""Protocol codecs: functions and decoders that convert between bytes and values, without I/O."""
