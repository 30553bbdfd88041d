"""What the code of a kernel says, whatever the launch."""
