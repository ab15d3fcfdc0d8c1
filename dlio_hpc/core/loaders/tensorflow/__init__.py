"""Loading with tf.data."""
